// What every generated client is asked to do; prints one line a step. Its argument is the service.
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.JSON;
import org.openapitools.client.api.ConsumeApi;
import org.openapitools.client.api.GroupsApi;
import org.openapitools.client.api.MaintenanceApi;
import org.openapitools.client.api.OffsetsApi;
import org.openapitools.client.api.ProduceApi;
import org.openapitools.client.api.ProducersApi;
import org.openapitools.client.api.SegmentsApi;
import org.openapitools.client.api.ServiceApi;
import org.openapitools.client.api.TopicsApi;
import org.openapitools.client.model.*;

public class Main {
    private static final String TOPIC = "events";

    private final ConsumeApi consume;
    private final ProduceApi produce;
    private final ApiClient client = new ApiClient();

    private Main(String url) {
        client.setBasePath(url).setReadTimeout(60_000);
        // Without this Gson leaves out nulls, and a record without a value is refused.
        JSON.setGson(JSON.getGson().newBuilder().serializeNulls().create());
        consume = new ConsumeApi(client);
        produce = new ProduceApi(client);
    }

    public static void main(String[] arguments) throws Exception {
        Main program = new Main(arguments[0]);
        program.roundTrip();
        program.errors();
        program.partialFailure();
        program.everythingElse();
        System.exit(0); // okhttp keeps its threads for a minute
    }

    private void roundTrip() throws ApiException {
        Topic made = new TopicsApi(client).putTopic(TOPIC, new PutTopic().partitions(1)
            .putConfigItem("retention.ms", new ConfigValue("-1"))).ifNoneMatch("*").execute();
        say("created", made.getTopic(), made.getConfig().get("retention.ms").getValue());
        AppendReceipt receipt = append(new RecordIn().key("ada").value(Map.of("n", 1)), new RecordIn().value("two"));
        say("appended", receipt.getBaseOffset(), receipt.getLastOffset(), receipt.getDuplicate());
        RecordPage page = read("0", null);
        RecordOut first = page.getRecords().get(0);
        say("read", first.getOffset(), first.getKey(), first.getValueEncoding(), page.getNextOffset());
        say("polling");
        RecordPage polled = read("2", 60_000L);
        say("polled", polled.getRecords().get(0).getOffset(), polled.getNextOffset());
    }

    private void errors() {
        try {
            consume.readRecords(TOPIC, 9).execute();
        } catch (ApiException error) {
            Problem problem = decoded(error);
            say("refused", error.getCode(), problem.getCode().getValue(), problem.getPartitions(), problem.getRetryable());
        }
        try {
            RecordsIn body = new RecordsIn().addRecordsItem(new RecordIn().value(1));
            produce.appendRecords(TOPIC, 0, body).expectedOffset("7").execute();
        } catch (ApiException error) {
            Problem problem = decoded(error);
            say("refused", error.getCode(), problem.getCode().getValue(), problem.getExpected(), problem.getLogEndOffset());
        }
    }

    private void partialFailure() throws ApiException {
        FetchPage page = consume.fetchMany(new FetchRequest()
            .addPartitionsItem(new PartitionFetch().topic(TOPIC).partition(0).offset(new OffsetOrName("0")).endOffset(1L))
            .addPartitionsItem(new PartitionFetch().topic(TOPIC).partition(9).offset(new OffsetOrName(0L)))).execute();
        FetchedPartition read = page.getPartitions().get(0).getFetchedPartition();
        FailedPartition failed = page.getPartitions().get(1).getFailedPartition();
        say("fetched", read.getRecords().size(), failed.getProblem().getStatus(), failed.getProblem().getCode().getValue());
        // What a later release may answer.
        String later = page.toJson().replace("\"outcome\"", "\"later\":{\"n\":1},\"outcome\"").replace("\"status\"", "\"later\":[1],\"status\"");
        try {
            page = FetchPage.fromJson(later);
        } catch (java.io.IOException wrong) {
            throw new IllegalStateException(wrong);
        }
        say("tolerated", page.getPartitions().get(0).getFetchedPartition().getRecords().size(),
            page.getPartitions().get(1).getFailedPartition().getProblem().getStatus());
    }

    private void everythingElse() throws ApiException {
        TopicsApi topics = new TopicsApi(client);
        OffsetsApi offsets = new OffsetsApi(client);
        GroupsApi groups = new GroupsApi(client);
        MaintenanceApi maintenance = new MaintenanceApi(client);
        ServiceApi service = new ServiceApi(client);
        PutGroupOffset position = new PutGroupOffset().offset(2L);
        List<Object> answers = List.of(
            topics.listTopics().execute(), topics.getTopic(TOPIC).execute(), topics.listPartitions(TOPIC).execute(),
            topics.getPartition(TOPIC, 0).execute(), offsets.getOffsets(TOPIC, 0).execute(),
            offsets.getOffsetAt(TOPIC, 0, "0").execute(),
            offsets.getOffsetAt(TOPIC, 0, "latest").execute(), offsets.getTopicOffsets(TOPIC).execute(),
            offsets.getTopicOffsets(TOPIC).timestamp("9").execute(),
            offsets.planSplits(TOPIC, new SplitRequest().start(Map.of("0", 1)).end("latest")).execute(),
            new ProducersApi(client).allocateProducer().execute(),
            new ProducersApi(client).listProducers(TOPIC, 0).execute(),
            groups.putGroupOffset(TOPIC, 0, "readers", position).execute(),
            groups.getGroupOffset(TOPIC, 0, "readers").execute(), groups.getGroupLag("readers").execute(),
            groups.listGroups().execute(), groups.listGroupOffsets("readers").execute(),
            maintenance.rollSegment(TOPIC, 0).execute(), maintenance.flushLog(TOPIC, 0).execute(),
            maintenance.runRetention(TOPIC, 0).dryRun(true).execute(),
            maintenance.getMove(TOPIC, 0).execute(), maintenance.listDirectories().execute(),
            maintenance.getScrubReport().execute(),
            maintenance.deleteRecords(TOPIC, 0, new DeleteRecords().beforeOffset(1L)).execute(),
            new SegmentsApi(client).listSegments(TOPIC, 0).execute(), service.getLimits().execute(),
            service.getReadiness().execute(),
            appendTombstone());
        say("decoded", answers.size());
    }

    private TopicAppendReceipt appendTombstone() throws ApiException {
        return produce.appendTopicRecords(TOPIC, new RecordsIn().addRecordsItem(new RecordIn().key("ada").value(null))).execute();
    }

    private AppendReceipt append(RecordIn... records) throws ApiException {
        RecordsIn body = new RecordsIn().records(List.of(records));
        return produce.appendRecords(TOPIC, 0, body).execute();
    }

    private RecordPage read(String offset, Long maxWaitMs) throws ApiException {
        return consume.readRecords(TOPIC, 0).offset(offset).maxWaitMs(maxWaitMs).execute();
    }

    private static Problem decoded(ApiException error) {
        try {
            return Problem.fromJson(error.getResponseBody());
        } catch (java.io.IOException wrong) {
            throw new IllegalStateException(wrong);
        }
    }

    private static void say(Object... words) {
        System.out.println(String.join(" ", java.util.Arrays.stream(words).map(String::valueOf).toList()));
        System.out.flush();
    }
}
