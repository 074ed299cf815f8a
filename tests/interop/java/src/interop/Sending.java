package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/** Sending: what a producer is answered, what lies in the queue afterwards, and what is refused how. */
public final class Sending {
    private static final int MESSAGE_BYTES_MAX = 4 * 1024 * 1024;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("sync-send", Sending::syncSend);
        all.scenario("async-send", Sending::asyncSend);
        all.scenario("one-way-send", Sending::oneWaySend);
        all.scenario("selected-queue", Sending::selectedQueue);
        all.scenario("stored-properties", Sending::storedProperties);
        all.scenario("reserved-properties", Sending::reservedProperties);
        all.scenario("flags-kept", Sending::flagsKept);
        all.scenario("header-v1-and-v2", Sending::bothHeaders);
        all.scenario("no-unique-id", Sending::noUniqueId);
        all.scenario("header-incomplete", Sending::headerIncomplete);
        all.scenario("unknown-request-code", Sending::unknownRequestCode);
        all.scenario("batch-send", Sending::batchSend);
        all.scenario("batch-of-many", Sending::batchOfMany);
        all.scenario("batch-header-properties", Sending::batchHeaderProperties);
        all.scenario("batch-rules-of-the-client", Sending::batchRulesOfTheClient);
        all.scenario("batch-with-delay", Sending::batchWithDelay);
        all.scenario("batch-to-retry-topic", Sending::batchToRetryTopic);
        all.scenario("batch-damaged", Sending::batchDamaged);
        all.scenario("batch-too-large", Sending::batchTooLarge);
        all.scenario("batch-flag-in-plain-send", Sending::batchFlagInPlainSend);
        all.scenario("compressed-zlib", (world, seen) -> compressed(world, seen, CompressionType.ZLIB));
        all.scenario("compressed-lz4", (world, seen) -> compressed(world, seen, CompressionType.LZ4));
        all.scenario("compressed-zstd", (world, seen) -> compressed(world, seen, CompressionType.ZSTD));
        all.scenario("topic-name-invalid", Sending::topicNameInvalid);
        all.scenario("topic-name-too-long", Sending::topicNameTooLong);
        all.scenario("system-topics", Sending::systemTopics);
        all.scenario("timer-topic-directly", Sending::timerTopicDirectly);
        all.scenario("empty-body", Sending::emptyBody);
        all.scenario("oversize-body", Sending::oversizeBody);
        all.scenario("oversize-properties", Sending::oversizeProperties);
        all.scenario("no-write-permission", Sending::noWritePermission);
        all.scenario("no-write-permission-raw", Sending::noWritePermissionRaw);
        all.scenario("queue-id-illegal", Sending::queueIdIllegal);
        all.scenario("queue-id-negative", Sending::queueIdNegative);
        all.scenario("queue-id-read-only", Sending::queueIdReadOnly);
        all.scenario("topic-created-by-send", Sending::topicCreatedBySend);
        all.scenario("topic-created-by-producer", Sending::topicCreatedByProducer);
        all.scenario("topic-created-by-batch", Sending::topicCreatedByBatch);
        all.scenario("topic-not-created", Sending::topicNotCreated);
        all.scenario("retry-topic-by-heartbeat", Sending::retryTopicByHeartbeat);
        all.scenario("retry-topic-by-send", Sending::retryTopicBySend);
        all.scenario("retry-topic-by-send-back", Sending::retryTopicBySendBack);
        all.scenario("dead-letter-topic", Sending::deadLetterTopic);
        all.scenario("send-back-refused", Sending::sendBackRefused);
        all.scenario("send-to-retry-topic-too-often", Sending::sendToRetryTopicTooOften);
        all.scenario("request-reply", Sending::requestReply);
        all.scenario("reply-to-nobody", Sending::replyToNobody);
        all.run(args);
    }

    // --- ways to send ----------------------------------------------------------------------------------

    private static void syncSend(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.attempt("first", () -> world.producer().send(world.message("one")));
        seen.attempt("second", () -> world.producer().send(world.message("two")));
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void asyncSend(World world, Observed seen) throws Exception {
        world.createTopic(1);
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            CompletableFuture<SendResult> answered = new CompletableFuture<>();
            world.producer().send(world.message("async-" + n), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.complete(result);
                }

                @Override
                public void onException(Throwable e) {
                    answered.completeExceptionally(e);
                }
            });
            sent.add(answered);
        }
        List<Long> offsets = new ArrayList<>();
        for (CompletableFuture<SendResult> answered : sent) {
            SendResult result = answered.get(15, TimeUnit.SECONDS);
            offsets.add(result.getQueueOffset());
            seen.put("status", result.getSendStatus());
        }
        Collections.sort(offsets);  // several threads of the client send: they may overtake each other
        seen.put("offsets", offsets);
        seen.put("stored", sortedBodies(world.stored(world.topic(), 0)));
    }

    private static void oneWaySend(World world, Observed seen) throws Exception {
        world.createTopic(1);
        for (int n = 0; n < 3; n++) {
            world.producer().sendOneway(world.message("one-way-" + n), world.queue(0));
        }
        waitForMessages(world, world.topic(), 3);
        // An Apache broker gives what nobody waits for to several threads: they may overtake each other.
        seen.put("stored", sortedBodies(world.stored(world.topic(), 0)));
    }

    private static void selectedQueue(World world, Observed seen) throws Exception {
        world.createTopic(4);
        for (int n = 0; n < 6; n++) {
            int number = n;
            seen.attempt("message-" + n, () -> world.producer().send(world.message("to-" + number),
                (queues, message, argument) -> queues.get((Integer) argument % queues.size()), number));
        }
        for (int queueId = 0; queueId < 4; queueId++) {
            seen.put("queue-" + queueId, bodies(world.stored(world.topic(), queueId)));
        }
    }

    // --- what is stored --------------------------------------------------------------------------------

    private static void storedProperties(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message message = new Message(world.topic(), "tag-a", "key-1 key-2", "body".getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("colour", "blau, gr\u00fcn");
        message.setBuyerId("42");
        seen.attempt("waits", () -> world.producer().send(message));
        Message hasty = world.message("hasty");
        hasty.setWaitStoreMsgOK(false);
        seen.attempt("does-not-wait", () -> world.producer().send(hasty));
        List<MessageExt> stored = world.stored(world.topic(), 0);
        for (int n = 0; n < stored.size(); n++) {
            Map<String, String> properties = new TreeMap<>(stored.get(n).getProperties());
            seen.put("has-checksum-" + n, properties.remove("__CRC32#") != null);
            seen.put("properties-" + n, properties);
            seen.put("tags-" + n, stored.get(n).getTags());
            seen.put("keys-" + n, stored.get(n).getKeys());
        }
    }

    private static void reservedProperties(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Object[] pairs = {"MSG_REGION", "elsewhere", "TRACE_ON", "false", "CLUSTER", "other", "POP_CK", "0 0 0",
            "MIN_OFFSET", "7", "REAL_TOPIC", "not-this", "1ST_POP_TIME", "5", "colour", "red"};
        seen.put("reply", codeAndRemark(send(world, world.topic(), 0, "body", properties(pairs))));
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void flagsKept(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message message = world.message("flagged");
        message.setFlag(77);
        seen.attempt("sent", () -> world.producer().send(message));
        RemotingCommand reply = world.call(RequestCode.SEND_MESSAGE_V2, "raw".getBytes(StandardCharsets.UTF_8),
            sendFields(world.topic(), 0, "", "h", -3, "f", 0x02, "g", 1600000000000L, "j", 2));
        seen.reply("raw", reply);
        List<MessageExt> stored = world.stored(world.topic(), 0);
        seen.put("stored", Observed.messages(stored));
        seen.put("born", stored.get(1).getBornTimestamp() == 1600000000000L);
        seen.put("born-host", String.valueOf(stored.get(1).getBornHost()));
        seen.put("store-host", String.valueOf(stored.get(1).getStoreHost()).equals("/" + world.broker));
    }

    private static void bothHeaders(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.reply("v2", send(world, world.topic(), 0, "v2", properties("UNIQ_KEY", id(1))));
        Object[] fields = {"producerGroup", "raw", "topic", world.topic(), "defaultTopic", "TBW102",
            "defaultTopicQueueNums", 4, "queueId", 0, "sysFlag", 0, "bornTimestamp", System.currentTimeMillis(),
            "flag", 0, "properties", properties("UNIQ_KEY", id(2)), "reconsumeTimes", 0, "unitMode", false, "batch", false};
        seen.reply("v1", world.call(RequestCode.SEND_MESSAGE, "v1".getBytes(StandardCharsets.UTF_8), fields));
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void noUniqueId(World world, Observed seen) throws Exception {
        world.createTopic(1);
        RemotingCommand reply = send(world, world.topic(), 0, "anonymous", "");
        seen.put("code", reply.getCode());
        seen.put("told-an-id", String.valueOf(reply.getExtFields().get("transactionId")).length() >= 32);
        MessageExt stored = world.stored(world.topic(), 0).get(0);
        seen.put("same-id", stored.getProperty("UNIQ_KEY").equals(reply.getExtFields().get("transactionId")));
        reply = send(world, world.topic(), 0, "no-properties", null);
        seen.put("code-without-properties", reply.getCode());
        seen.put("names", Observed.names(world.stored(world.topic(), 0).get(1).getProperties()));
    }

    private static void headerIncomplete(World world, Observed seen) throws Exception {
        world.createTopic(1);
        byte[] body = "body".getBytes(StandardCharsets.UTF_8);
        for (String missing : new String[] {"a", "b", "c", "d", "e", "f", "g", "h"}) {
            Object[] fields = sendFields(world.topic(), 0, "", missing, null);
            for (int i = 0; i < fields.length - 2; i += 2) {
                if (fields[i].equals(missing)) {
                    fields[i + 1] = null;
                }
            }
            seen.put("without-" + missing, codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, body, fields)));
        }
        seen.put("v1-without-group", codeAndRemark(world.call(RequestCode.SEND_MESSAGE, body, "topic", world.topic(),
            "defaultTopic", "TBW102", "defaultTopicQueueNums", 4, "queueId", 0, "sysFlag", 0, "bornTimestamp", 1,
            "flag", 0, "batch", false)));
        seen.put("queue-not-a-number", codeAndRemark(world.call(
            RequestCode.SEND_MESSAGE_V2, body, sendFields(world.topic(), 0, "", "e", "zero"))));
    }

    private static void unknownRequestCode(World world, Observed seen) throws Exception {
        seen.put("9999", codeAndRemark(world.call(9999, null)));
    }

    // --- batches ---------------------------------------------------------------------------------------

    private static void batchSend(World world, Observed seen) throws Exception {
        world.createTopic(1);
        List<Message> batch = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            Message message = world.message("batched-" + n);
            message.setTags("tag-" + n);
            message.setKeys("key-" + n);
            message.setFlag(n);
            message.putUserProperty("number", String.valueOf(n));
            batch.add(message);
        }
        seen.attempt("first", () -> world.producer().send(batch, world.queue(0)));
        seen.attempt("second", () -> world.producer().send(Arrays.asList(world.message("alone")), world.queue(0)));
        List<MessageExt> stored = world.stored(world.topic(), 0);
        seen.put("stored", Observed.messages(stored));
        Set<String> ids = new HashSet<>();
        for (MessageExt message : stored) {
            ids.add(message.getMsgId());
        }
        seen.put("ids-of-consumers", ids.size());
    }

    private static void batchOfMany(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message[] many = new Message[2000];
        for (int n = 0; n < many.length; n++) {
            many[n] = world.message("n" + n);
        }
        seen.put("1024", codeAndRemark(sendBatch(world, world.topic(), encode(Arrays.copyOf(many, 1024)))));
        seen.put("2000", codeAndRemark(sendBatch(world, world.topic(), encode(many))));
    }

    private static void batchHeaderProperties(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message own = world.message("one");
        own.putUserProperty("colour", "red");
        String properties = properties("UNIQ_KEY", id(7), "colour", "blue", "size", "large");
        RemotingCommand reply = world.call(RequestCode.SEND_BATCH_MESSAGE, encode(own, world.message("two")),
            sendFields(world.topic(), 0, properties, "m", true));
        seen.put("code", reply.getCode());
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void batchRulesOfTheClient(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message delayed = world.message("delayed");
        delayed.setDelayTimeLevel(1);
        Message other = new Message(world.topic() + "-2", "other".getBytes(StandardCharsets.UTF_8));
        seen.attempt("delayed", () -> world.producer().send(Arrays.asList(delayed, world.message("plain"))));
        seen.attempt("two-topics", () -> world.producer().send(Arrays.asList(world.message("plain"), other)));
        Message retry = new Message("%RETRY%" + world.group(), "retry".getBytes(StandardCharsets.UTF_8));
        seen.attempt("retry-topic", () -> world.producer().send(Arrays.asList(retry)));
        seen.put("stored", bodies(world.stored(world.topic(), 0)));
    }

    private static void batchWithDelay(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message delayed = world.message("delayed");
        delayed.setDelayTimeLevel(1);
        byte[] body = encode(world.message("plain"), delayed);
        seen.put("reply", codeAndRemark(sendBatch(world, world.topic(), body)));
        seen.put("header-with-delay", codeAndRemark(world.call(RequestCode.SEND_BATCH_MESSAGE,
            encode(world.message("plain-2")), sendFields(world.topic(), 0, properties("DELAY", "1"), "m", true))));
        Thread.sleep(1500);
        seen.put("stored", bodies(world.stored(world.topic(), 0)));
    }

    private static void batchToRetryTopic(World world, Observed seen) throws Exception {
        String topic = "%RETRY%" + world.group();
        seen.put("reply", codeAndRemark(sendBatch(world, topic, encode(new Message(topic, new byte[] {1})))));
    }

    private static void batchDamaged(World world, Observed seen) throws Exception {
        world.createTopic(1);
        byte[] good = encode(world.message("one"), world.message("two"));
        seen.put("truncated", codeAndRemark(sendBatch(world, world.topic(), Arrays.copyOf(good, good.length - 3))));
        byte[] long_ = good.clone();
        long_[0] = 0x7f;
        seen.put("length-too-large", codeAndRemark(sendBatch(world, world.topic(), long_)));
        seen.put("garbage", codeAndRemark(sendBatch(world, world.topic(), "garbage".getBytes(StandardCharsets.UTF_8))));
        seen.put("stored", bodies(world.stored(world.topic(), 0)));
    }

    private static void batchTooLarge(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message half = new Message(world.topic(), new byte[MESSAGE_BYTES_MAX / 2]);
        seen.put("two-halves", codeAndRemark(sendBatch(world, world.topic(), encode(half, half))));
        seen.put("one-half", codeAndRemark(sendBatch(world, world.topic(), encode(half, world.message("small")))));
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void batchFlagInPlainSend(World world, Observed seen) throws Exception {
        world.createTopic(1);
        RemotingCommand reply = world.call(RequestCode.SEND_MESSAGE_V2, encode(world.message("one"), world.message("two")),
            sendFields(world.topic(), 0, "", "m", true));
        seen.put("code", reply.getCode());
        seen.put("ids", reply.getExtFields().get("msgId").split(",").length);
        seen.put("offset", reply.getExtFields().get("queueOffset"));
        seen.put("stored", bodies(world.stored(world.topic(), 0)));
    }

    // --- compression -----------------------------------------------------------------------------------

    private static void compressed(World world, Observed seen, CompressionType type) throws Exception {
        world.createTopic(1);
        DefaultMQProducer producer = new DefaultMQProducer("compressing-" + world.name);
        producer.setCompressMsgBodyOverHowmuch(100);
        producer.setCompressType(type);
        world.start(producer, "compressing-" + world.name);
        byte[] body = new byte[6000];
        Arrays.fill(body, (byte) 'k');
        seen.attempt("sent", () -> producer.send(new Message(world.topic(), body)));
        RemotingCommand pulled = world.pull(0, 0);
        seen.put("stored", Observed.messages(World.decode(pulled)));
        ByteBuffer record = ByteBuffer.wrap(pulled.getBody());
        seen.put("body-bytes-in-the-log", record.getInt(84));  // after the fixed fields of a record with IPv4 hosts
        seen.put("sys-flag-in-the-log", record.getInt(36));
    }

    // --- refusals --------------------------------------------------------------------------------------

    private static void topicNameInvalid(World world, Observed seen) throws Exception {
        for (String topic : new String[] {"with space", "dot.dot", "../up", "slash/ed", "stern*", "gr\u00fcn", "", " "}) {
            seen.put("<" + topic + ">", codeAndRemark(send(world, topic, 0, "body", "")));
        }
        for (String topic : new String[] {"with space", "dot.dot"}) {
            seen.attempt("client <" + topic + ">",
                () -> world.producer().send(new Message(topic, "body".getBytes(StandardCharsets.UTF_8))));
        }
    }

    private static void topicNameTooLong(World world, Observed seen) throws Exception {
        for (int length : new int[] {127, 128, 255, 256}) {
            seen.put("topic of " + length, codeAndRemark(send(world, name("t", length), 0, "body", "")));
            String retry = name("%RETRY%" + world.group(), length);
            seen.put("retry topic of " + length, codeAndRemark(send(world, retry, 0, "body", "")));
        }
    }

    private static void systemTopics(World world, Observed seen) throws Exception {
        for (String topic : new String[] {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TBW102", "BenchmarkTest",
            "RMQ_SYS_TRACE_TOPIC", "rmq_sys_unheard_of", "CHECKPOINT_TOPIC", "DefaultCluster", "broker-a",
            "DefaultCluster_REPLY_TOPIC"}) {
            seen.put(topic, codeAndRemark(send(world, topic, 0, "body", "")));
        }
    }

    private static void timerTopicDirectly(World world, Observed seen) throws Exception {
        seen.put("reply", codeAndRemark(send(world, "rmq_sys_wheel_timer", 0, "body", "")));
    }

    private static void emptyBody(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.attempt("client", () -> world.producer().send(new Message(world.topic(), new byte[0])));
        seen.put("empty", codeAndRemark(world.call(
            RequestCode.SEND_MESSAGE_V2, new byte[0], sendFields(world.topic(), 0, ""))));
        seen.put("none", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, null, sendFields(world.topic(), 0, ""))));
        seen.put("stored", bodies(world.stored(world.topic(), 0)));
    }

    private static void oversizeBody(World world, Observed seen) throws Exception {
        world.createTopic(1);
        DefaultMQProducer producer = new DefaultMQProducer("large-" + world.name);
        producer.setMaxMessageSize(MESSAGE_BYTES_MAX * 2);
        producer.setCompressMsgBodyOverHowmuch(MESSAGE_BYTES_MAX * 2);
        world.start(producer, "large-" + world.name);
        for (int size : new int[] {MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1}) {
            seen.attempt("body of " + size, () -> producer.send(new Message(world.topic(), new byte[size])));
        }
        seen.attempt("refused by the client", () -> world.producer().send(
            new Message(world.topic(), new byte[MESSAGE_BYTES_MAX + 1])));
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
    }

    private static void oversizeProperties(World world, Observed seen) throws Exception {
        world.createTopic(1);
        for (int size : new int[] {30_000, 32_500, 32_767, 32_768, 40_000, 70_000}) {
            String properties = properties("UNIQ_KEY", id(size), "long", "");
            properties = properties("UNIQ_KEY", id(size), "long", name("v", size - properties.length()));
            seen.put("properties of " + size, codeAndRemark(send(world, world.topic(), 0, "body", properties)));
        }
        Message large = world.message("large");
        large.putUserProperty("long", name("v", 40_000));
        seen.attempt("client", () -> world.producer().send(large));
        seen.put("stored", world.stored(world.topic(), 0).size());
    }

    private static void noWritePermission(World world, Observed seen) throws Exception {
        world.createTopic(world.topic(), 1, 1, 4);
        seen.attempt("client", () -> world.producer().send(world.message("body")));
    }

    private static void noWritePermissionRaw(World world, Observed seen) throws Exception {
        world.createTopic(world.topic(), 1, 1, 4);
        seen.put("reply", codeAndRemark(send(world, world.topic(), 0, "body", "")));
    }

    private static void queueIdIllegal(World world, Observed seen) throws Exception {
        world.createTopic(2);
        seen.put("just-too-high", codeAndRemark(send(world, world.topic(), 2, "body", "")));
        seen.put("much-too-high", codeAndRemark(send(world, world.topic(), 1_000_000, "body", "")));
        seen.attempt("client", () -> world.producer().send(world.message("body"), world.queue(7)));
    }

    private static void queueIdNegative(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.reply("reply", send(world, world.topic(), -1, "body", properties("UNIQ_KEY", id(1))));
    }

    private static void queueIdReadOnly(World world, Observed seen) throws Exception {
        world.createTopic(world.topic(), 4, 2, World.READ_WRITE);
        seen.reply("queue-3-of-2-to-write", send(world, world.topic(), 3, "body", properties("UNIQ_KEY", id(1))));
        seen.put("stored", bodies(world.stored(world.topic(), 3)));
    }

    // --- topics that make themselves -------------------------------------------------------------------

    private static void topicCreatedBySend(World world, Observed seen) throws Exception {
        for (int queues : new int[] {1, 4, 8, 100, 0, -1}) {
            String topic = world.topic() + "-" + queues;
            RemotingCommand reply = world.call(RequestCode.SEND_MESSAGE_V2, new byte[] {1},
                sendFields(topic, 0, properties("UNIQ_KEY", id(1)), "d", queues));
            seen.reply("asked for " + queues, reply);
            seen.put("topic for " + queues, topicConfig(world, topic));
        }
        String topic = world.topic() + "-unit";
        seen.put("unit mode", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, new byte[] {1},
            sendFields(topic, 0, "", "k", true))));
        seen.put("topic of unit mode", topicConfig(world, topic));
        topic = world.topic() + "-far";
        seen.put("queue beyond", codeAndRemark(send(world, topic, 9, "body", "")));
        seen.put("topic of queue beyond", topicConfig(world, topic));
    }

    private static void topicCreatedByProducer(World world, Observed seen) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("creating-" + world.name);
        producer.setDefaultTopicQueueNums(3);
        world.start(producer, "creating-" + world.name);
        seen.put("status", producer.send(world.message("first")).getSendStatus());
        seen.put("topic", topicConfig(world, world.topic()));
        Message other = new Message(world.topic() + "-usual", "first".getBytes(StandardCharsets.UTF_8));
        seen.put("usual-status", world.producer().send(other).getSendStatus());
        seen.put("usual-topic", topicConfig(world, other.getTopic()));
    }

    private static void topicCreatedByBatch(World world, Observed seen) throws Exception {
        seen.put("reply", codeAndRemark(sendBatch(world, world.topic(), encode(world.message("one")))));
        seen.put("topic", topicConfig(world, world.topic()));
    }

    private static void topicNotCreated(World world, Observed seen) throws Exception {
        world.createTopic(world.topic() + "-plain", 1, 1, World.READ_WRITE);
        for (String pattern : new String[] {"NoSuchTopic", world.topic() + "-plain", "SELF_TEST_TOPIC", ""}) {
            String topic = world.topic() + "-after-" + pattern;
            seen.put("after <" + pattern + ">", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, new byte[] {1},
                sendFields(topic, 0, "", "c", pattern))));
            seen.put("topic after <" + pattern + ">", topicConfig(world, topic));
        }
        seen.put("topic after the cluster's", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, new byte[] {1},
            sendFields(world.topic() + "-cluster", 0, "", "c", "DefaultCluster"))));
        seen.put("config after the cluster's", topicConfig(world, world.topic() + "-cluster"));
    }

    private static void retryTopicByHeartbeat(World world, Observed seen) throws Exception {
        world.createTopic(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        world.start(consumer, "consumer-" + world.name);
        seen.put("topic", topicConfig(world, "%RETRY%" + world.group()));
        seen.put("dead-letters", topicConfig(world, "%DLQ%" + world.group()));
        seen.put("group", groupConfig(world, world.group()));
    }

    private static void retryTopicBySend(World world, Observed seen) throws Exception {
        String topic = "%RETRY%" + world.group();
        seen.put("group-unknown", codeAndRemark(send(world, topic, 0, "body", "")));
        seen.put("topic", topicConfig(world, topic));
        seen.put("group", groupConfig(world, world.group()));
        String dead = "%DLQ%" + world.group();
        seen.put("dead-letter", codeAndRemark(send(world, dead, 0, "body", "")));
        seen.put("dead-letter-topic", topicConfig(world, dead));
    }

    private static void retryTopicBySendBack(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "again");
        MessageExt message = world.stored(world.topic(), 0).get(0);
        saveGroup(world, world.group(), 3, 16);
        seen.put("reply", codeAndRemark(sendBack(world, world.group(), message.getCommitLogOffset(), 0)));
        seen.put("topic", topicConfig(world, "%RETRY%" + world.group()));
        saveGroup(world, world.group() + "-none", 0, 16);
        seen.put("no retry queues", codeAndRemark(sendBack(world, world.group() + "-none", message.getCommitLogOffset(), 0)));
        seen.put("topic without queues", topicConfig(world, "%RETRY%" + world.group() + "-none"));
    }

    private static void deadLetterTopic(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "given-up");
        MessageExt message = world.stored(world.topic(), 0).get(0);
        saveGroup(world, world.group(), 2, 16);
        seen.put("reply", codeAndRemark(sendBack(world, world.group(), message.getCommitLogOffset(), -1)));
        String dead = "%DLQ%" + world.group();
        seen.put("topic", topicConfig(world, dead));
        waitForMessages(world, dead, 1);
        seen.put("stored", Observed.messages(world.stored(dead, 0)));
    }

    private static void sendBackRefused(World world, Observed seen) throws Exception {
        seen.put("no message there", codeAndRemark(sendBack(world, world.group(), 1L << 40, 0)));
        seen.put("group unknown to a strict broker", groupConfig(world, world.group()));
        seen.put("negative offset", codeAndRemark(sendBack(world, world.group(), -5, 0)));
    }

    private static void sendToRetryTopicTooOften(World world, Observed seen) throws Exception {
        saveGroup(world, world.group(), 1, 16);
        String topic = "%RETRY%" + world.group();
        String properties = properties("UNIQ_KEY", id(1));
        byte[] body = "tried".getBytes(StandardCharsets.UTF_8);
        seen.put("last-try", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, body,
            sendFields(topic, 0, properties, "j", 2, "l", 2))));
        seen.put("one-too-many", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, body,
            sendFields(topic, 0, properties, "j", 3, "l", 2))));
        seen.put("group-limit", codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, body,
            sendFields(topic, 0, properties, "j", 17, "l", null))));
        waitForMessages(world, "%DLQ%" + world.group(), 2);
        seen.put("retry", Observed.messages(world.stored(topic, 0)));
        seen.put("dead", Observed.messages(world.stored("%DLQ%" + world.group(), 0)));
    }

    // --- requests and replies --------------------------------------------------------------------------

    private static void requestReply(World world, Observed seen) throws Exception {
        world.createTopic(1);
        DefaultMQProducer replier = new DefaultMQProducer("repliers-" + world.name);
        world.start(replier, "replier-" + world.name);
        CompletableFuture<SendResult> replied = new CompletableFuture<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                Message reply = MessageUtil.createReplyMessage(messages.get(0), "the reply".getBytes(StandardCharsets.UTF_8));
                replied.complete(replier.send(reply, World.TIMEOUT_MILLIS));
            } catch (Exception e) {
                replied.completeExceptionally(e);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.start(consumer, "consumer-" + world.name);
        CompletableFuture<Message> received = new CompletableFuture<>();
        world.producer().request(world.message("the question"), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {  // 5.3.3 calls this with nothing as soon as the question is sent
                    received.complete(reply);
                }
            }

            @Override
            public void onException(Throwable e) {
                received.completeExceptionally(e);
            }
        }, 30_000);
        Message reply = received.get(40, TimeUnit.SECONDS);
        seen.put("replied", replied.get(10, TimeUnit.SECONDS).getSendStatus());
        Map<String, String> properties = new TreeMap<>(reply.getProperties());
        for (String name : new String[] {"CORRELATION_ID", "REPLY_TO_CLIENT", "ARRIVE_TIME", "PUSH_REPLY_TIME", "__CRC32#"}) {
            properties.replace(name, "some");
        }
        seen.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        seen.put("topic", reply.getTopic());
        seen.put("properties", properties);
        seen.put("class", reply.getClass().getSimpleName());
    }

    private static void replyToNobody(World world, Observed seen) throws Exception {
        String topic = "DefaultCluster_REPLY_TOPIC";
        byte[] body = "reply".getBytes(StandardCharsets.UTF_8);
        seen.put("no-client", codeAndRemark(world.call(RequestCode.SEND_REPLY_MESSAGE_V2, body,
            sendFields(topic, 0, properties("CORRELATION_ID", "1", "MSG_TYPE", "reply")))));
        seen.put("client-unknown", codeAndRemark(world.call(RequestCode.SEND_REPLY_MESSAGE_V2, body,
            sendFields(topic, 0, properties("CORRELATION_ID", "1", "MSG_TYPE", "reply", "REPLY_TO_CLIENT", "nobody")))));
        seen.put("topic-unknown", codeAndRemark(world.call(RequestCode.SEND_REPLY_MESSAGE_V2, body,
            sendFields("../up", 0, properties("REPLY_TO_CLIENT", "nobody")))));
    }

    // --- what several need -----------------------------------------------------------------------------

    static RemotingCommand send(World world, String topic, int queueId, String body, String properties) throws Exception {
        return world.call(RequestCode.SEND_MESSAGE_V2, body.getBytes(StandardCharsets.UTF_8),
            sendFields(topic, queueId, properties));
    }

    private static RemotingCommand sendBatch(World world, String topic, byte[] body) throws Exception {
        return world.call(RequestCode.SEND_BATCH_MESSAGE, body, sendFields(topic, 0, "", "m", true));
    }

    /** The short names of a send's header; `more` goes over them. */
    static Object[] sendFields(String topic, int queueId, String properties, Object... more) {
        Object[] usual = {"a", "raw-producers", "b", topic, "c", "TBW102", "d", 4, "e", queueId, "f", 0,
            "g", System.currentTimeMillis(), "h", 0, "i", properties, "j", 0, "k", false, "m", false};
        Object[] all = Arrays.copyOf(usual, usual.length + more.length);
        System.arraycopy(more, 0, all, usual.length, more.length);
        return all;
    }

    static String properties(Object... namesAndValues) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            text.append(namesAndValues[i]).append('\u0001').append(namesAndValues[i + 1]).append('\u0002');
        }
        return text.toString();
    }

    private static String id(int number) {
        return String.format("7F0000010000000000000000%08X", number);
    }

    private static byte[] encode(Message... messages) {
        return MessageDecoder.encodeMessages(Arrays.asList(messages));
    }

    private static String name(String start, int length) {
        StringBuilder name = new StringBuilder(start);
        while (name.length() < length) {
            name.append('x');
        }
        return name.toString();
    }

    static Observed codeAndRemark(RemotingCommand reply) {
        Observed told = new Observed();
        told.put("code", reply.getCode());
        told.put("remark", reply.getRemark());
        return told;
    }

    static List<String> bodies(List<MessageExt> messages) {
        List<String> bodies = new ArrayList<>();
        for (MessageExt message : messages) {
            bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
        }
        return bodies;
    }

    private static List<String> sortedBodies(List<MessageExt> messages) {
        List<String> bodies = bodies(messages);
        Collections.sort(bodies);
        return bodies;
    }

    static void waitForMessages(World world, String topic, int count) throws Exception {
        for (int i = 0; i < 200; i++) {
            RemotingCommand reply = world.call(RequestCode.GET_MAX_OFFSET, null, "topic", topic, "queueId", 0);
            if (reply.getCode() == 0 && Long.parseLong(reply.getExtFields().get("offset")) >= count) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("fewer than " + count + " messages in " + topic + " after 10 s");
    }

    /** A topic's settings, or the code that says why there are none. */
    static Object topicConfig(World world, String topic) throws Exception {
        RemotingCommand reply = world.call(RequestCode.GET_TOPIC_CONFIG, null, "topic", topic, "lo", false);
        if (reply.getCode() != 0) {
            return reply.getCode();
        }
        JSONObject config = JSON.parseObject(new String(reply.getBody(), StandardCharsets.UTF_8));
        Map<String, Object> told = new TreeMap<>();
        for (String name : new String[] {"topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType",
            "topicSysFlag", "order"}) {
            told.put(name, config.get(name));
        }
        return told;
    }

    static Object groupConfig(World world, String group) throws Exception {
        RemotingCommand reply = world.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, null, "group", group);
        if (reply.getCode() != 0) {
            return reply.getCode();
        }
        return new TreeMap<String, Object>(JSON.parseObject(new String(reply.getBody(), StandardCharsets.UTF_8)));
    }

    static void saveGroup(World world, String group, int retryQueues, int triesMax, Object... more) throws Exception {
        JSONObject config = new JSONObject();
        config.put("groupName", group);
        config.put("retryQueueNums", retryQueues);
        config.put("retryMaxTimes", triesMax);
        for (int i = 0; i < more.length; i += 2) {
            config.put((String) more[i], more[i + 1]);
        }
        byte[] body = config.toJSONString().getBytes(StandardCharsets.UTF_8);
        RemotingCommand reply = world.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body);
        if (reply.getCode() != 0) {
            throw new IllegalStateException("group " + group + ": " + reply.getCode() + " " + reply.getRemark());
        }
    }

    private static RemotingCommand sendBack(World world, String group, long physicalOffset, int level) throws Exception {
        return world.call(RequestCode.CONSUMER_SEND_MSG_BACK, null, "offset", physicalOffset, "group", group,
            "originTopic", world.topic(), "originMsgId", "7F0000010000000000000000",
            "delayLevel", level, "unitMode", false, "maxReconsumeTimes", 16);
    }

    private Sending() {
    }
}
