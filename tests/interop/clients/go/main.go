// What every generated client is asked to do; prints one line a step. Its argument is the service.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	tidelog "example.com/tidelog/client"
)

const topic = "events"

var everything = context.Background()

func main() {
	settings := tidelog.NewConfiguration()
	settings.Servers = tidelog.ServerConfigurations{{URL: os.Args[1]}}
	client := tidelog.NewAPIClient(settings)
	roundTrip(client)
	errors(client)
	partialFailure(client)
	everythingElse(client)
}

func roundTrip(client *tidelog.APIClient) {
	wanted := tidelog.NewPutTopic()
	wanted.SetPartitions(1)
	wanted.SetConfig(map[string]tidelog.ConfigValue{"retention.ms": {String: tidelog.PtrString("-1")}})
	made := must(client.TopicsAPI.PutTopic(everything, topic).PutTopic(*wanted).IfNoneMatch("*").Execute())
	say("created", made.Topic, made.Config["retention.ms"].Value)
	first, second := tidelog.NewRecordIn(map[string]int{"n": 1}), tidelog.NewRecordIn("two")
	first.SetKey("ada")
	body := tidelog.NewRecordsIn([]tidelog.RecordIn{*first, *second})
	receipt := must(client.ProduceAPI.AppendRecords(everything, topic, 0).RecordsIn(*body).Execute())
	say("appended", receipt.BaseOffset, receipt.LastOffset, receipt.Duplicate)
	page := must(client.ConsumeAPI.ReadRecords(everything, topic, 0).Offset("0").Execute())
	record := page.Records[0]
	say("read", record.Offset, record.Key, record.ValueEncoding, page.NextOffset)
	say("polling")
	polled := must(client.ConsumeAPI.ReadRecords(everything, topic, 0).Offset("2").MaxWaitMs(60_000).Execute())
	say("polled", polled.Records[0].Offset, polled.NextOffset)
}

func errors(client *tidelog.APIClient) {
	_, answer, err := client.ConsumeAPI.ReadRecords(everything, topic, 9).Execute()
	problem := decoded(err)
	say("refused", answer.StatusCode, problem.Code, problem.GetPartitions(), problem.Retryable)
	body := tidelog.NewRecordsIn([]tidelog.RecordIn{*tidelog.NewRecordIn(1)})
	_, answer, err = client.ProduceAPI.AppendRecords(everything, topic, 0).RecordsIn(*body).ExpectedOffset("7").Execute()
	problem = decoded(err)
	say("refused", answer.StatusCode, problem.Code, problem.GetExpected(), problem.GetLogEndOffset())
}

func partialFailure(client *tidelog.APIClient) {
	here, missing := tidelog.NewPartitionFetch(topic, 0), tidelog.NewPartitionFetch(topic, 9)
	here.SetEndOffset(1)
	here.SetOffset(tidelog.OffsetOrName{String: tidelog.PtrString("0")})
	missing.SetOffset(tidelog.OffsetOrName{Int64: tidelog.PtrInt64(0)})
	request := tidelog.NewFetchRequest([]tidelog.PartitionFetch{*here, *missing})
	page := must(client.ConsumeAPI.FetchMany(everything).FetchRequest(*request).Execute())
	problem := page.Partitions[1].FailedPartition.Problem
	say("fetched", len(page.Partitions[0].FetchedPartition.Records), problem.Status, problem.Code)
	// What a later release may answer.
	text, _ := json.Marshal(page)
	later := strings.ReplaceAll(string(text), `"outcome"`, `"later":{"n":1},"outcome"`)
	later = strings.ReplaceAll(later, `"status"`, `"later":[1],"status"`)
	again := tidelog.FetchPage{}
	if wrong := json.Unmarshal([]byte(later), &again); wrong != nil {
		panic(wrong)
	}
	say("tolerated", len(again.Partitions[0].FetchedPartition.Records), again.Partitions[1].FailedPartition.Problem.Status)
}

func everythingElse(client *tidelog.APIClient) {
	splits := tidelog.NewSplitRequest()
	splits.SetStart(map[string]int{"0": 1})
	splits.SetEnd("latest")
	position := tidelog.NewPutGroupOffset(2)
	body := tidelog.NewRecordsIn([]tidelog.RecordIn{*tidelog.NewRecordIn(4)})
	answers := []any{
		must(client.TopicsAPI.ListTopics(everything).Execute()),
		must(client.TopicsAPI.GetTopic(everything, topic).Execute()),
		must(client.TopicsAPI.ListPartitions(everything, topic).Execute()),
		must(client.TopicsAPI.GetPartition(everything, topic, 0).Execute()),
		must(client.OffsetsAPI.GetOffsets(everything, topic, 0).Execute()),
		must(client.OffsetsAPI.GetOffsetAt(everything, topic, 0).Timestamp("0").Execute()),
		must(client.OffsetsAPI.GetOffsetAt(everything, topic, 0).Timestamp("latest").Execute()),
		must(client.OffsetsAPI.GetTopicOffsets(everything, topic).Execute()),
		must(client.OffsetsAPI.GetTopicOffsets(everything, topic).Timestamp("9").Execute()),
		must(client.OffsetsAPI.PlanSplits(everything, topic).SplitRequest(*splits).Execute()),
		must(client.ProducersAPI.AllocateProducer(everything).Execute()),
		must(client.ProducersAPI.ListProducers(everything, topic, 0).Execute()),
		must(client.GroupsAPI.PutGroupOffset(everything, topic, 0, "readers").PutGroupOffset(*position).Execute()),
		must(client.GroupsAPI.GetGroupOffset(everything, topic, 0, "readers").Execute()),
		must(client.GroupsAPI.GetGroupLag(everything, "readers").Execute()),
		must(client.GroupsAPI.ListGroups(everything).Execute()),
		must(client.GroupsAPI.ListGroupOffsets(everything, "readers").Execute()),
		must(client.MaintenanceAPI.RollSegment(everything, topic, 0).Execute()),
		must(client.MaintenanceAPI.FlushLog(everything, topic, 0).Execute()),
		must(client.MaintenanceAPI.RunRetention(everything, topic, 0).DryRun(true).Execute()),
		must(client.MaintenanceAPI.GetMove(everything, topic, 0).Execute()),
		must(client.MaintenanceAPI.ListDirectories(everything).Execute()),
		must(client.MaintenanceAPI.GetScrubReport(everything).Execute()),
		must(client.MaintenanceAPI.DeleteRecords(everything, topic, 0).DeleteRecords(*tidelog.NewDeleteRecords(1)).Execute()),
		must(client.SegmentsAPI.ListSegments(everything, topic, 0).Execute()),
		must(client.ServiceAPI.GetLimits(everything).Execute()),
		must(client.ServiceAPI.GetReadiness(everything).Execute()),
		must(client.ProduceAPI.AppendTopicRecords(everything, topic).RecordsIn(*body).Execute()),
	}
	say("decoded", len(answers))
}

func must[T any](value *T, answer *http.Response, err error) *T {
	if err != nil {
		if answer != nil {
			fmt.Fprintln(os.Stderr, answer.Request.Method, answer.Request.URL)
		}
		panic(err)
	}
	return value
}

func decoded(err error) tidelog.Problem {
	problem := tidelog.Problem{}
	if wrong := json.Unmarshal(err.(*tidelog.GenericOpenAPIError).Body(), &problem); wrong != nil {
		panic(wrong)
	}
	return problem
}

func say(words ...any) { fmt.Println(words...) }
