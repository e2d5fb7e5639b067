// What every generated client is asked to do; prints one line a step. Its argument is the service.
use openapi::apis::configuration::Configuration;
use openapi::apis::{
    consume_api as consume, groups_api as groups, maintenance_api as maintenance,
    offsets_api as offsets, produce_api as produce, producers_api as producers,
    segments_api as segments, service_api as service, topics_api as topics, Error,
};
use openapi::models;
use serde_json::json;

const TOPIC: &str = "events";
const GROUP: &str = "readers";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut client = Configuration::new();
    client.base_path = std::env::args().nth(1).expect("the address of the service");
    round_trip(&client).await;
    errors(&client).await;
    partial_failure(&client).await;
    everything_else(&client).await;
}

async fn round_trip(client: &Configuration) {
    let retention = models::ConfigValue::String("-1".into());
    let wanted = models::PutTopic {
        partitions: Some(1),
        config: Some([("retention.ms".into(), retention)].into()),
    };
    let made = topics::put_topic(client, TOPIC, wanted, None, Some("*")).await.unwrap();
    println!("created {} {}", made.topic, made.config["retention.ms"].value);
    let mut first = record(json!({"n": 1}));
    first.key = Some(Some(json!("ada")));
    let receipt = append(client, vec![first, record(json!("two"))], None).await.unwrap();
    println!("appended {} {} {}", receipt.base_offset, receipt.last_offset, receipt.duplicate);
    let page = read(client, 0, "0", None).await.unwrap();
    let (shown, key) = (&page.records[0], page.records[0].key.as_ref().unwrap());
    let encoding = json!(shown.value_encoding);
    println!("read {} {} {} {}", shown.offset, key.as_str().unwrap(), encoding.as_str().unwrap(), page.next_offset);
    println!("polling");
    let polled = read(client, 0, "2", Some(20_000)).await.unwrap();
    println!("polled {} {}", polled.records[0].offset, polled.next_offset);
}

async fn errors(client: &Configuration) {
    let (status, problem) = refused(read(client, 9, "0", None).await);
    let code = json!(problem.code);
    println!("refused {} {} {} {}", status, code.as_str().unwrap(), problem.partitions.unwrap(), problem.retryable);
    let (status, problem) = refused(append(client, vec![record(json!(1))], Some("7")).await);
    let code = json!(problem.code);
    let (expected, end) = (problem.expected.unwrap(), problem.log_end_offset.unwrap());
    println!("refused {} {} {} {}", status, code.as_str().unwrap(), expected, end);
}

async fn partial_failure(client: &Configuration) {
    let mut here = models::PartitionFetch::new(TOPIC.into(), 0);
    here.offset = Some(Box::new(models::OffsetOrName::String("0".into())));
    here.end_offset = Some(Some(1));
    let mut missing = models::PartitionFetch::new(TOPIC.into(), 9);
    missing.offset = Some(Box::new(models::OffsetOrName::Integer(0)));
    let request = models::FetchRequest::new(vec![here, missing]);
    let page = consume::fetch_many(client, request).await.unwrap();
    let [models::FetchEntry::Read(read), models::FetchEntry::Failed(failed)] = &page.partitions[..] else {
        panic!("{:?}", page.partitions)
    };
    let code = json!(failed.problem.code);
    println!("fetched {} {} {}", read.records.len(), failed.problem.status, code.as_str().unwrap());
    // What a later release may answer.
    let later = json!(page).to_string().replace(r#""outcome""#, r#""later":{"n":1},"outcome""#);
    let later = later.replace(r#""status""#, r#""later":[1],"status""#);
    let page: models::FetchPage = serde_json::from_str(&later).unwrap();
    let [models::FetchEntry::Read(read), models::FetchEntry::Failed(failed)] = &page.partitions[..] else {
        panic!("{:?}", page.partitions)
    };
    println!("tolerated {} {}", read.records.len(), failed.problem.status);
}

async fn everything_else(client: &Configuration) {
    let mut splits = models::SplitRequest::new();
    splits.start = Some(Some(json!({"0": 1})));
    splits.end = Some(Some(json!("latest")));
    let body = models::RecordsIn::new(vec![record(json!(4))]);
    let answers = [
        format!("{:?}", topics::list_topics(client, None, None, None).await.unwrap()),
        format!("{:?}", topics::get_topic(client, TOPIC, None).await.unwrap()),
        format!("{:?}", topics::list_partitions(client, TOPIC).await.unwrap()),
        format!("{:?}", topics::get_partition(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", offsets::get_offsets(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", offsets::get_offset_at(client, TOPIC, 0, "0").await.unwrap()),
        format!("{:?}", offsets::get_offset_at(client, TOPIC, 0, "latest").await.unwrap()),
        format!("{:?}", offsets::get_topic_offsets(client, TOPIC, None).await.unwrap()),
        format!("{:?}", offsets::get_topic_offsets(client, TOPIC, Some("9")).await.unwrap()),
        format!("{:?}", offsets::plan_splits(client, TOPIC, splits).await.unwrap()),
        format!("{:?}", producers::allocate_producer(client).await.unwrap()),
        format!("{:?}", producers::list_producers(client, TOPIC, 0, None, None).await.unwrap()),
        format!("{:?}", groups::put_group_offset(client, TOPIC, 0, GROUP, models::PutGroupOffset::new(2), None, None).await.unwrap()),
        format!("{:?}", groups::get_group_offset(client, TOPIC, 0, GROUP, None).await.unwrap()),
        format!("{:?}", groups::get_group_lag(client, GROUP, None).await.unwrap()),
        format!("{:?}", groups::list_groups(client, None, None).await.unwrap()),
        format!("{:?}", groups::list_group_offsets(client, GROUP, None, None).await.unwrap()),
        format!("{:?}", maintenance::roll_segment(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", maintenance::flush_log(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", maintenance::run_retention(client, TOPIC, 0, Some(true)).await.unwrap()),
        format!("{:?}", maintenance::get_move(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", maintenance::list_directories(client).await.unwrap()),
        format!("{:?}", maintenance::get_scrub_report(client).await.unwrap()),
        format!("{:?}", maintenance::delete_records(client, TOPIC, 0, models::DeleteRecords::new(1)).await.unwrap()),
        format!("{:?}", segments::list_segments(client, TOPIC, 0).await.unwrap()),
        format!("{:?}", service::get_limits(client).await.unwrap()),
        format!("{:?}", service::get_readiness(client).await.unwrap()),
        format!("{:?}", produce::append_topic_records(client, TOPIC, body, None, None).await.unwrap()),
    ];
    println!("decoded {}", answers.len());
}

fn record(value: serde_json::Value) -> models::RecordIn {
    models::RecordIn::new(Some(value))
}

async fn append(
    client: &Configuration,
    records: Vec<models::RecordIn>,
    expected: Option<&str>,
) -> Result<models::AppendReceipt, Error<produce::AppendRecordsError>> {
    let body = models::RecordsIn::new(records);
    produce::append_records(client, TOPIC, 0, body, None, None, None, None, None, None, None, expected, None).await
}

async fn read(
    client: &Configuration,
    partition: i32,
    offset: &str,
    wait_ms: Option<i64>,
) -> Result<models::RecordPage, Error<consume::ReadRecordsError>> {
    consume::read_records(
        client, TOPIC, partition, Some(offset), None, None, wait_ms, None, None, None, None, None, None, None, None, None, None, None,
    )
    .await
}

fn refused<T, E>(answer: Result<T, Error<E>>) -> (u16, models::Problem) {
    match answer {
        Err(Error::ResponseError(told)) => {
            (told.status.as_u16(), serde_json::from_str(&told.content).unwrap())
        }
        _ => panic!("it was not refused"),
    }
}
