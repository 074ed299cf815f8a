package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileTime;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.CheckClientRequestBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * A broker that makes nothing by itself, filters by tag alone and keeps nothing for long:
 * autoCreateTopicEnable, autoCreateSubscriptionGroup and enablePropertyFilter are false, fileReservedTime is 1 hour.
 */
public final class Strict {
    private static final int SEGMENT_BYTES = 1024 * 1024;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("expired-messages", 150, Strict::expiredMessages);
        all.scenario("strict-unknown-topic", Strict::unknownTopic);
        all.scenario("strict-unknown-topic-through-the-client", Strict::unknownTopicThroughTheClient);
        all.scenario("strict-retry-topic", Strict::retryTopic);
        all.scenario("strict-unknown-group-pulls", Strict::unknownGroupPulls);
        all.scenario("strict-unknown-group-beats", Strict::unknownGroupBeats);
        all.scenario("strict-unknown-group-commits", Strict::unknownGroupCommits);
        all.scenario("strict-unknown-group-sends-back", Strict::unknownGroupSendsBack);
        all.scenario("strict-known-group", Strict::knownGroup);
        all.scenario("strict-no-sql", Strict::noSql);
        all.scenario("strict-no-sql-through-the-client", Strict::noSqlThroughTheClient);
        all.run(args);
    }

    private static void expiredMessages(World world, Observed seen) throws Exception {
        world.createTopic(1);
        for (int n = 0; n < 6; n++) {  // two of them fill a segment of the log, and only the last segment stays
            byte[] body = new byte[SEGMENT_BYTES / 3];
            new Random(n).nextBytes(body);  // which the client cannot compress
            world.producer().send(new Message(world.topic(), body), world.queue(0));
        }
        world.settle();
        makeOld();
        for (int i = 0; i < 120 && limit(world, RequestCode.GET_MIN_OFFSET) < 4; i++) {
            world.call(RequestCode.DELETE_EXPIRED_COMMITLOG, null);
            Thread.sleep(1000);
        }
        if (limit(world, RequestCode.GET_MIN_OFFSET) < 4) {
            throw new IllegalStateException("too little was deleted within 2 minutes");
        }
        seen.put("min", limit(world, RequestCode.GET_MIN_OFFSET));
        seen.put("max", limit(world, RequestCode.GET_MAX_OFFSET));
        Sending.saveGroup(world, world.group(), 1, 16);
        for (long offset : new long[] {-1, 0, 1, 3, 4, 6, 7}) {
            RemotingCommand reply = world.pull(0, offset);
            Observed told = new Observed();
            told.put("code", reply.getCode());
            told.put("next", reply.getExtFields().get("nextBeginOffset"));
            told.put("min", reply.getExtFields().get("minOffset"));
            told.put("max", reply.getExtFields().get("maxOffset"));
            told.put("found", World.decode(reply).size());
            seen.put("offset " + offset, told);
        }
        seen.put("offset of a new group", query(world, world.group()));
        RemotingCommand reply = world.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, null,
            "topic", world.topic(), "queueId", 0, "timestamp", 0);
        seen.put("offset of time 0", reply.getExtFields().get("offset"));
    }

    /** The broker's store is beside our own folder: what is in its log was written two hours ago. */
    private static void makeOld() throws Exception {
        FileTime old = FileTime.fromMillis(System.currentTimeMillis() - 2 * 3_600_000);
        try (Stream<Path> files = Files.walk(Paths.get(".."))) {
            for (Path file : (Iterable<Path>) files.filter(each -> each.toString().contains("/commitlog/"))::iterator) {
                Files.setLastModifiedTime(file, old);
            }
        }
    }

    private static long limit(World world, int code) throws Exception {
        RemotingCommand reply = world.call(code, null, "topic", world.topic(), "queueId", 0);
        return Long.parseLong(reply.getExtFields().get("offset"));
    }

    private static void unknownTopic(World world, Observed seen) throws Exception {
        seen.put("send", Sending.codeAndRemark(Sending.send(world, world.topic(), 0, "body", "")));
        seen.put("after the cluster's", Sending.codeAndRemark(world.call(RequestCode.SEND_MESSAGE_V2, new byte[] {1},
            Sending.sendFields(world.topic(), 0, "", "c", "DefaultCluster"))));
        seen.put("topic", Sending.topicConfig(world, world.topic() + "-none"));
        seen.put("the pattern itself", Sending.topicConfig(world, "TBW102"));
    }

    private static void unknownTopicThroughTheClient(World world, Observed seen) throws Exception {
        seen.attempt("sent", () -> world.producer().send(world.message("body")));
    }

    private static void retryTopic(World world, Observed seen) throws Exception {
        String topic = "%RETRY%" + world.group();
        seen.put("send", Sending.codeAndRemark(Sending.send(world, topic, 0, "body", "")));
        seen.put("topic", Sending.topicConfig(world, topic));
        Sending.saveGroup(world, world.group(), 2, 16);
        seen.put("group known", Sending.codeAndRemark(Sending.send(world, topic, 0, "body", "")));
    }

    private static void unknownGroupPulls(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        seen.put("pull", Sending.codeAndRemark(world.pull(0, 0)));
        seen.put("group", Sending.groupConfig(world, world.group()));
    }

    private static void unknownGroupBeats(World world, Observed seen) throws Exception {
        world.createTopic(1);
        World.Raw raw = world.newRaw();
        seen.reply("heartbeat", Receiving.heartbeat(raw, "member", Receiving.consumer(
            world.group(), MessageModel.CLUSTERING, Receiving.subscription(world.topic(), "*", 1))));
        seen.put("members", Sending.codeAndRemark(
            world.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, null, "consumerGroup", world.group())));
        seen.put("retry topic", Sending.topicConfig(world, "%RETRY%" + world.group()));
    }

    private static void unknownGroupCommits(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.put("update", Sending.codeAndRemark(world.call(RequestCode.UPDATE_CONSUMER_OFFSET, null,
            "consumerGroup", world.group(), "topic", world.topic(), "queueId", 0, "commitOffset", 1)));
        seen.put("query", query(world, world.group()));
    }

    private static void unknownGroupSendsBack(World world, Observed seen) throws Exception {
        seen.put("reply", Sending.codeAndRemark(world.call(RequestCode.CONSUMER_SEND_MSG_BACK, null, "offset", 0,
            "group", world.group(), "delayLevel", 0, "originTopic", "any", "originMsgId", "any", "unitMode", false)));
    }

    private static void knownGroup(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Sending.saveGroup(world, world.group(), 1, 16);
        Sending.saveGroup(world, "readers-" + world.name, 1, 16);
        world.fill(0, "a");
        seen.put("stored", Observed.messages(world.stored(world.topic(), 0)));
        seen.put("pull", Receiving.pulled(world.pull(0, 0)));
    }

    private static void noSql(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Sending.saveGroup(world, world.group(), 1, 16);
        SubscriptionData subscription = Receiving.subscription(world.topic(), "a > 1", 1);
        subscription.setExpressionType("SQL92");
        CheckClientRequestBody body = new CheckClientRequestBody();
        body.setClientId("client");
        body.setGroup(world.group());
        body.setSubscriptionData(subscription);
        seen.put("check", Sending.codeAndRemark(world.call(RequestCode.CHECK_CLIENT_CONFIG, body.encode())));
        seen.put("own", Sending.codeAndRemark(
            world.pull(0, 0, "subscription", "a > 1", "expressionType", "SQL92")));
        Receiving.heartbeat(world.newRaw(), "member",
            Receiving.consumer(world.group(), MessageModel.CLUSTERING, subscription));
        seen.put("by heartbeat", Sending.codeAndRemark(world.pull(0, 0, "sysFlag", 0, "subVersion", 1)));
    }

    private static void noSqlThroughTheClient(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Sending.saveGroup(world, world.group(), 1, 16);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), MessageSelector.bySql("a > 1"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        seen.attempt("start", () -> {
            world.start(consumer, "consumer-" + world.name);
            return "started";
        });
    }

    private static Object query(World world, String group) throws Exception {
        RemotingCommand reply = world.call(RequestCode.QUERY_CONSUMER_OFFSET, null, "consumerGroup", group,
            "topic", world.topic(), "queueId", 0);
        return reply.getCode() == 0 ? reply.getExtFields().get("offset") : "code " + reply.getCode();
    }

    private Strict() {
    }
}
