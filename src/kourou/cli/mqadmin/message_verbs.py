"""Messages, in the original's words."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from kourou.cli.mqadmin.verbs import Given, human, java_map, printf, verb
from kourou.cli.output import as_text
from kourou.errors import ConfigError, MQError
from kourou.remoting.address import format_address

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.messages import TraceStep
    from kourou.admin.topics import TopicAt
    from kourou.client import SendResult
    from kourou.message import ReceivedMessage
    from kourou.protocol.bodies import MessageQueue

RULE = "--------------------------------------------------------"
EVER_MS = (1 << 63) - 1


@verb(
    "queryMsgById",
    "t:topic",
    "i:msgId!",
    "g:consumerGroup",
    "d:clientId",
    "s:sendMessage",
    "u:unitName",
    "f:bodyFormat",
    "c:cluster",
)
def query_msg_by_id(connection: Connection, given: Given) -> None:
    """Query Message by Id."""
    from kourou.admin import groups, messages

    for offset_id in filter(None, (each.strip() for each in given("msgId").split(","))):
        found = messages.by_id(connection, offset_id)
        if given.has("consumerGroup") and given.has("clientId"):
            outcome = groups.consume_directly(
                connection, given("consumerGroup"), given("clientId"), offset_id, found.topic
            )
            printf("%s", str(outcome))
        elif given.flag("sendMessage"):
            from kourou.message import Message

            printf("prepare resend msg. originalMsgId=%s", offset_id)
            again = Message(found.topic, found.body, tags=found.tags, keys=found.keys)
            printf("%s", send_result(messages.send(connection, again)))
        else:
            _show(connection, found, with_offset_id=True, body_format=given.get("bodyFormat"))


@verb(
    "queryMsgByUniqueKey", "i:msgId!", "g:consumerGroup", "d:clientId", "t:topic!", "a/showAll", "c:cluster"
)
def query_msg_by_unique_key(connection: Connection, given: Given) -> None:
    """Query Message by Unique key."""
    from kourou.admin import groups, messages

    found = messages.by_id(connection, given("msgId"), given("topic"))
    if given.has("consumerGroup") and given.has("clientId"):
        outcome = groups.consume_directly(
            connection, given("consumerGroup"), given("clientId"), found.offset_id, found.topic
        )
        printf("%s", str(outcome))
        return
    _show(connection, found)


@verb("queryMsgByOffset", "t:topic!", "b:brokerName!", "i:queueId!", "o:offset!", "f:bodyFormat")
def query_msg_by_offset(connection: Connection, given: Given) -> None:
    """Query Message by offset."""
    from kourou.admin import messages

    found = messages.by_offset(
        connection, given("topic"), given("brokerName"), given.number("queueId"), given.number("offset")
    )
    _show(connection, found, with_offset_id=True, body_format=given.get("bodyFormat"))


def _show(
    connection: Connection,
    found: ReceivedMessage,
    *,
    with_offset_id: bool = False,
    body_format: str | None = None,
) -> None:
    from kourou.admin import messages

    rows: list[tuple[str, object]] = [
        ("Topic:", found.topic),
        ("Tags:", f"[{found.tags or 'null'}]"),
        ("Keys:", f"[{found.keys or 'null'}]"),
        ("Queue ID:", found.queue_id),
        ("Queue Offset:", found.queue_offset),
        ("CommitLog Offset:", found.physical_offset),
        ("Reconsume Times:", found.reconsume_times),
        ("Born Timestamp:", human(found.born_at_ms)),
        ("Store Timestamp:", human(found.stored_at_ms)),
        ("Born Host:", format_address(*found.born_host)),
        ("Store Host:", format_address(*found.store_host)),
        ("System Flag:", found.sys_flag),
        ("Properties:", java_map(dict(found.properties))),
    ]
    if with_offset_id:
        rows.insert(0, ("OffsetID:", found.offset_id))
    for name, value in rows:
        printf("%-20s %s", name, value)
    if body_format is None:
        printf("%-20s %s", "Message Body Path:", _body_file(found))
    else:
        printf("%-20s %s", "Message Body:", found.body.decode(body_format, "backslashreplace"))
    tracks = messages.tracks(connection, found)
    if not tracks:
        printf("\n\nWARN: No Consumer")
        return
    printf("\n")
    for track in tracks:
        printf(
            "MessageTrack [consumerGroup=%s, trackType=%s, exceptionDesc=%s]",
            *(track.group, track.state, track.detail or "null"),
        )


def _body_file(found: ReceivedMessage) -> str:
    """Where its body lies: a folder of the user's own, not one that anybody may have made before."""
    folder = tempfile.mkdtemp(prefix="kourou-msgbodys-")
    path = os.path.join(folder, "".join(each for each in found.message_id if each.isalnum()))
    with open(path, "wb") as file:
        file.write(found.body)
    return path


@verb("queryMsgByKey", "t:topic!", "k:msgKey!", "b:beginTimestamp", "e:endTimestamp", "m:maxNum", "c:cluster")
def query_msg_by_key(connection: Connection, given: Given) -> None:
    """Query Message by Key."""
    from kourou.admin import messages

    found = messages.by_key(
        connection,
        given("topic"),
        given("msgKey"),
        count=given.number("maxNum", 64),
        begin_ms=given.moment_ms("beginTimestamp", 0),
        end_ms=given.moment_ms("endTimestamp", EVER_MS),
    )
    printf("%-50s %4s %40s", "#Message ID", "#QID", "#Offset")
    for each in found:
        printf("%-50s %4d %40d", each.message_id, each.queue_id, each.queue_offset)


@verb("queryMsgTraceById", "i:msgId!", "t:traceTopic", "b:beginTimestamp", "e:endTimestamp", "c:maxNum")
def query_msg_trace_by_id(connection: Connection, given: Given) -> None:
    """Query a message trace."""
    from kourou.admin import messages
    from kourou.protocol.names import TRACE_TOPIC

    steps = messages.trace(
        connection,
        given("msgId"),
        trace_topic=given.get("traceTopic") or TRACE_TOPIC,
        begin_ms=given.moment_ms("beginTimestamp", 0),
        end_ms=given.moment_ms("endTimestamp", EVER_MS),
    )
    form = "%-10s %-20s %-20s %-20s %-10s %-10s"
    sent = [step for step in steps if step.kind == "Pub"]
    if sent:
        printf(form, "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
        for step in sent:
            printf(form, "Pub", step.group, step.client, *_cost(step))
        printf("")
    handled = [step for step in steps if step.kind == "SubAfter"]
    for group in dict.fromkeys(step.group for step in handled):
        printf(form, "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        for step in handled:
            if step.group == group:
                printf(form, "Sub", step.group, step.client, *_cost(step))
        printf("")


def _cost(step: TraceStep) -> tuple[str, str, str]:
    return human(step.time_ms)[:19], f"{step.spent_ms}ms", "success" if step.is_success else "failed"


# ----------------------------------------------------------------------------------------------- reading


@verb(
    "printMsg",
    "t:topic!",
    "c:charsetName",
    "s:subExpression",
    "b:beginTimestamp",
    "e:endTimestamp",
    "d:printBody",
    "l:lmqParentTopic",
)
def print_msg(connection: Connection, given: Given) -> None:
    """Print Message Detail."""
    from kourou.client import operations

    for part, queue in _queues(connection, given("topic")):
        least = connection.run(operations.min_offset(part.address, queue))
        most = connection.run(operations.max_offset(part.address, queue))
        if given.has("beginTimestamp"):
            begin_ms = given.moment_ms("beginTimestamp", 0)
            least = connection.run(operations.offset_at(part.address, queue, begin_ms))
        if given.has("endTimestamp"):
            end_ms = given.moment_ms("endTimestamp", 0)
            most = connection.run(operations.offset_at(part.address, queue, end_ms))
        printf("minOffset=%s, maxOffset=%s, %s", str(least), str(most), str(queue))
        _print_all(
            _read(connection, part, queue, least, most, given.get("subExpression")),
            given.get("charsetName") or "UTF-8",
            given.flag("printBody", True),
        )
        printf("%s", RULE)


@verb(
    "printMsgByQueue",
    "t:topic!",
    "a:brokerName!",
    "i:queueId!",
    "c:charsetName",
    "s:subExpression",
    "b:beginTimestamp",
    "e:endTimestamp",
    "p:print msg",
    "d:printBody",
    "f:calculate",
)
def print_msg_by_queue(connection: Connection, given: Given) -> None:
    """Print Message Detail by queueId."""
    from collections import Counter

    from kourou.client import operations

    part, queue = _queue(connection, given("topic"), given("brokerName"), given.number("queueId"))
    least = connection.run(operations.min_offset(part.address, queue))
    most = connection.run(operations.max_offset(part.address, queue))
    if given.has("beginTimestamp"):
        begin_ms = given.moment_ms("beginTimestamp", 0)
        least = connection.run(operations.offset_at(part.address, queue, begin_ms))
    if given.has("endTimestamp"):
        end_ms = given.moment_ms("endTimestamp", 0)
        most = connection.run(operations.offset_at(part.address, queue, end_ms))
    found = list(_read(connection, part, queue, least, most, given.get("subExpression")))
    if given.flag("calculate"):
        for tag, count in Counter(each.tags for each in found if each.tags).most_common():
            printf("Tag: %-30s Count: %s", tag, str(count))
    if given.flag("print msg"):
        _print_all(found, given.get("charsetName") or "UTF-8", given.flag("printBody"))


@verb(
    "consumeMessage",
    "t:topic!",
    "b:brokerName",
    "i:queueId",
    "o:offset",
    "g:consumerGroup",
    "s:beginTimestamp",
    "e:endTimestamp",
    "c:MessageNumber",
)
def consume_message(connection: Connection, given: Given) -> None:
    """Consume message."""
    from kourou.client import operations

    count = given.number("MessageNumber", 128)
    if count <= 0:
        raise ConfigError("Please input a positive messageNumber!")
    if given.has("queueId") and not given.has("brokerName"):
        raise ConfigError("Please set the brokerName before queueId!")
    if given.has("offset") and not given.has("queueId"):
        raise ConfigError("Please set queueId before offset!")
    if given.has("queueId"):
        chosen = [_queue(connection, given("topic"), given("brokerName"), given.number("queueId"))]
    else:
        chosen = _queues(connection, given("topic"))
    left = count
    for part, queue in chosen:
        least = max(connection.run(operations.min_offset(part.address, queue)), given.number("offset", 0))
        most = connection.run(operations.max_offset(part.address, queue))
        if given.has("beginTimestamp"):
            begin_ms = given.moment_ms("beginTimestamp", 0)
            least = connection.run(operations.offset_at(part.address, queue, begin_ms))
        if given.has("endTimestamp"):
            end_ms = given.moment_ms("endTimestamp", 0)
            most = connection.run(operations.offset_at(part.address, queue, end_ms))
        if most - least > left:
            printf("The oldler %d message will be provided", left)
        found = list(_read(connection, part, queue, least, min(most, least + left), None))
        if not found:
            printf("%s print msg finished. status=NO_NEW_MSG, offset=%s", str(queue), str(least))
            continue
        printf("Consume ok")
        _print_all(found, "UTF-8", True)
        left -= len(found)
        if left <= 0:
            return


def _queues(connection: Connection, topic: str) -> list[tuple[TopicAt, MessageQueue]]:
    from kourou.admin import topics
    from kourou.protocol.bodies import MessageQueue

    return [
        (part, MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=topic))
        for part in topics.at_brokers(connection, topic)
        for queue_id in range(part.read_queues)
    ]


def _queue(connection: Connection, topic: str, broker: str, queue_id: int) -> tuple[TopicAt, MessageQueue]:
    from kourou.errors import NotFound

    for part, queue in _queues(connection, topic):
        if (queue.broker_name, queue.queue_id) == (broker, queue_id):
            return part, queue
    raise NotFound(17, f"topic '{topic}' has no queue {queue_id} at broker '{broker}'")


def _read(
    connection: Connection, part: TopicAt, queue: MessageQueue, begin: int, end: int, tags: str | None
) -> Iterable[ReceivedMessage]:
    from kourou.admin import messages
    from kourou.client.operations import Subscription

    subscription = Subscription(queue.topic, tags or "*", 0)
    for each in messages.read_queue(connection, part.address, queue, begin, end):
        if subscription.wants(each):
            yield each


def _print_all(found: Iterable[ReceivedMessage], charset: str, with_body: bool) -> None:
    for each in found:
        try:
            body = each.body.decode(charset, "backslashreplace") if with_body else "NOT PRINT BODY"
        except (LookupError, MQError) as error:
            body = f"<{error}>"
        click.echo(as_text(f"MSGID: {each.message_id} {_message_text(each)} BODY: {body}"))


def _message_text(each: ReceivedMessage) -> str:
    from zlib import crc32

    body = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in each.body)
    return (
        f"MessageExt [brokerName={each.broker_name}, queueId={each.queue_id}, storeSize={each.size}, "
        f"queueOffset={each.queue_offset}, sysFlag={each.sys_flag}, bornTimestamp={each.born_at_ms}, "
        f"bornHost=/{format_address(*each.born_host)}, storeTimestamp={each.stored_at_ms}, "
        f"storeHost=/{format_address(*each.store_host)}, msgId={each.offset_id}, "
        f"commitLogOffset={each.physical_offset}, bodyCRC={crc32(each.body) & 0x7FFFFFFF}, "
        f"reconsumeTimes={each.reconsume_times}, preparedTransactionOffset=0, "
        f"toString()=Message{{topic='{each.topic}', flag={each.flag}, "
        f"properties={java_map(dict(each.properties))}, body=[{body}], transactionId='null'}}]"
    )


@verb("queryCq", "t:topic!", "q:queue!", "i:index!", "c:count", "b:broker", "g:consumer")
def query_cq(connection: Connection, given: Given) -> None:
    """Query cq command."""
    from kourou.admin import topics
    from kourou.protocol.bodies import ConsumeQueuePage
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request
    from kourou.protocol.headers import QueryConsumeQueue

    address = given.get("broker") or topics.at_brokers(connection, given("topic"))[0].address
    header = QueryConsumeQueue(
        given("topic"),
        given.number("queue"),
        given.number("index"),
        given.number("count", 10),
        given.get("consumer"),
    )
    reply = connection.ask(
        address, request(RequestCode.QUERY_CONSUME_QUEUE, header), "asked for entries of a consume queue"
    )
    page = ConsumeQueuePage.decode(reply.body)
    rule = "======================================"
    if page.subscription_data:
        printf("Subscription data: \n%s", page.subscription_data.encode().decode())
        printf(rule)
    if page.filter_data:
        printf("Filter data: \n%s", page.filter_data)
        printf(rule)
    printf("Queue data: \nmax: %d, min: %d", page.max_queue_index, page.min_queue_index)
    printf(rule)
    for index, entry in enumerate(page.queue_data, given.number("index")):
        printf("idx: %d", index)
        printf(
            "ConsumeQueueData{physicOffset=%d, physicSize=%d, tagsCode=%d, extendDataJson='null', "
            "bitMap='null', eval=%s, msg='%s'}",
            entry.physic_offset,
            entry.physic_size,
            entry.tags_code,
            "true" if entry.eval else "false",
            entry.msg or "null",
        )
        printf(rule)


# ----------------------------------------------------------------------------------------------- sending


@verb("sendMessage", "t:topic!", "p:body!", "k:key", "c:tags", "b:broker", "i:qid", "m:msgTraceEnable")
def send_message(connection: Connection, given: Given) -> None:
    """Send a message."""
    from kourou.admin import messages
    from kourou.message import Message
    from kourou.protocol.bodies import MessageQueue

    queue = None
    if given.has("qid"):
        if not given.has("broker"):
            raise ConfigError("Broker name must be set if the queue is chosen!")
        queue = MessageQueue(broker_name=given("broker"), queue_id=given.number("qid"), topic=given("topic"))
    message = Message(given("topic"), given("body").encode(), tags=given.get("tags"), keys=given.get("key"))
    sent = messages.send(connection, message, queue=queue)
    form = "%-32s  %-4s  %-20s    %s"
    printf(form, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    printf(form, sent.queue.broker_name, str(sent.queue.queue_id), sent.status.value, sent.message_id)


@verb("sendMsgStatus", "b:brokerName!", "s:messageSize", "c:count")
def send_msg_status(connection: Connection, given: Given) -> None:
    """Send msg to broker."""
    from kourou.client import Producer
    from kourou.message import Message

    body = ("hello jodie" * (given.number("messageSize", 128) // 11 + 1)).encode()
    name = given("brokerName")
    with Producer(
        "PID_SMSC", connection.name_server, access=connection.access, tls=connection.tls
    ) as producer:
        producer.send(Message(name, body[:16]))
        for _ in range(given.number("count", 50)):
            begun = time.perf_counter()
            sent = producer.send(Message(name, body))
            printf(
                "rt=%sms, SendResult=%s", str(round((time.perf_counter() - begun) * 1000)), send_result(sent)
            )


def send_result(sent: SendResult) -> str:
    return (
        f"SendResult [sendStatus={sent.status.value}, msgId={sent.message_id}, offsetMsgId={sent.offset_id}, "
        f"messageQueue={sent.queue}, queueOffset={sent.queue_offset}, "
        f"recallHandle={sent.recall_handle or 'null'}]"
    )


@verb("checkMsgSendRT", "t:topic!", "a:amount", "s:size")
def check_msg_send_rt(connection: Connection, given: Given) -> None:
    """Check message send response time."""
    from kourou.client import Producer
    from kourou.message import Message

    amount, size = given.number("amount", 100), given.number("size", 128)
    form = "%-32s  %-4s  %-20s    %s"
    printf(form, "#Broker Name", "#QID", "#Send Result", "#RT")
    queues = [queue for _, queue in _queues(connection, given("topic"))]
    times = []
    with Producer(
        "kourou-check-rt", connection.name_server, access=connection.access, tls=connection.tls
    ) as producer:
        for number in range(amount):
            queue = queues[number % len(queues)]
            begun = time.perf_counter()
            try:
                producer.send(Message(given("topic"), bytes(size)), queue=queue)
                is_sent = True
            except MQError:
                is_sent = False
            spent = round((time.perf_counter() - begun) * 1000)
            if number or amount == 1:  # the first one connects, and is not counted, as with the original
                times.append(spent)
            printf(form, queue.broker_name, str(queue.queue_id), "true" if is_sent else "false", str(spent))
    printf("Avg RT: %.2f", sum(times) / max(1, len(times)))


@verb("DecodeMessageId", "i:messageId!")
def decode_message_id(connection: Connection, given: Given) -> None:
    """Decode unique message ID."""
    from datetime import datetime
    from ipaddress import ip_address

    from kourou.protocol.message_id import parse_unique_id

    told = parse_unique_id(given("messageId"))
    now_ms = connection.clock.now_ms()
    offset = datetime.now().astimezone().utcoffset()
    made_ms = told.made_at_ms(now_ms, 0 if offset is None else round(offset.total_seconds() * 1000))
    printf("ip=%s", str(ip_address(told.address)))
    printf("date=%s", human(made_ms))
