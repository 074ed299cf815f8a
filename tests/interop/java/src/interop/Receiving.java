package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.CheckClientRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.UnlockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/** Receiving: how a pull ends, who is told what of a group, where a group is, and who has a queue for itself. */
public final class Receiving {
    private static final int COMMIT = 1;
    private static final int SUSPEND = 2;
    private static final int OWN_SUBSCRIPTION = 4;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("pull-found", Receiving::pullFound);
        all.scenario("pull-reply-fields", Receiving::pullReplyFields);
        all.scenario("pull-count-limits", Receiving::pullCountLimits);
        all.scenario("pull-empty-queue", Receiving::pullEmptyQueue);
        all.scenario("pull-offset-too-small", Receiving::pullOffsetTooSmall);
        all.scenario("pull-offset-overflow", Receiving::pullOffsetOverflow);
        all.scenario("pull-tag-filter", Receiving::pullTagFilter);
        all.scenario("pull-filtered-batch", Receiving::pullFilteredBatch);
        all.scenario("pull-through-the-client", Receiving::pullThroughTheClient);
        all.scenario("pull-unknown-topic", Receiving::pullUnknownTopic);
        all.scenario("pull-unknown-group", Receiving::pullUnknownGroup);
        all.scenario("pull-illegal-queue", Receiving::pullIllegalQueue);
        all.scenario("pull-no-read-permission", Receiving::pullNoReadPermission);
        all.scenario("pull-group-disabled", Receiving::pullGroupDisabled);
        all.scenario("pull-broadcast-disabled", Receiving::pullBroadcastDisabled);
        all.scenario("pull-without-heartbeat", Receiving::pullWithoutHeartbeat);
        all.scenario("pull-not-subscribed", Receiving::pullNotSubscribed);
        all.scenario("pull-subscription-stale", Receiving::pullSubscriptionStale);
        all.scenario("pull-bad-subscription", Receiving::pullBadSubscription);
        all.scenario("pull-commits-offset", Receiving::pullCommitsOffset);
        all.scenario("pull-suggested-broker", Receiving::pullSuggestedBroker);
        all.scenario("long-poll-wakes", Receiving::longPollWakes);
        all.scenario("long-poll-ends", Receiving::longPollEnds);
        all.scenario("long-poll-other-tag", Receiving::longPollOtherTag);
        all.scenario("long-poll-only-at-the-end", Receiving::longPollOnlyAtTheEnd);
        all.scenario("sql-expressions", Receiving::sqlExpressions);
        all.scenario("sql-check", Receiving::sqlCheck);
        all.scenario("sql-push", Receiving::sqlPush);
        all.scenario("sql-bad-in-heartbeat", Receiving::sqlBadInHeartbeat);
        all.scenario("sql-bad-through-the-client", Receiving::sqlBadThroughTheClient);
        all.scenario("push-tags", Receiving::pushTags);
        all.scenario("push-goes-on", Receiving::pushGoesOn);
        all.scenario("push-from-last", Receiving::pushFromLast);
        all.scenario("push-two-members", Receiving::pushTwoMembers);
        all.scenario("push-broadcast", Receiving::pushBroadcast);
        all.scenario("lite-pull", Receiving::litePull);
        all.scenario("heartbeat-reply", Receiving::heartbeatReply);
        all.scenario("heartbeat-short-form", Receiving::heartbeatShortForm);
        all.scenario("heartbeat-bad", Receiving::heartbeatBad);
        all.scenario("members-and-notifications", Receiving::membersAndNotifications);
        all.scenario("members-connections", Receiving::membersConnections);
        all.scenario("members-notifications-off", Receiving::membersNotificationsOff);
        all.scenario("members-disagree", Receiving::membersDisagree);
        all.scenario("offset-query", Receiving::offsetQuery);
        all.scenario("offset-update", Receiving::offsetUpdate);
        all.scenario("offset-update-refused", Receiving::offsetUpdateRefused);
        all.scenario("offset-backwards", Receiving::offsetBackwards);
        all.scenario("offset-limits", Receiving::offsetLimits);
        all.scenario("offset-reset-by-time", Receiving::offsetResetByTime);
        all.scenario("offset-reset-by-place", Receiving::offsetResetByPlace);
        all.scenario("offset-reset-refused", Receiving::offsetResetRefused);
        all.scenario("lock-by-two", Receiving::lockByTwo);
        all.scenario("lock-other-groups", Receiving::lockOtherGroups);
        all.scenario("lock-queues-unknown", Receiving::lockQueuesUnknown);
        all.scenario("lock-by-a-stranger", Receiving::lockByAStranger);
        all.scenario("orderly-consumer", Receiving::orderlyConsumer);
        all.run(args);
    }

    // --- how a pull ends -------------------------------------------------------------------------------

    private static void pullFound(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b", "c", "d", "e");
        seen.put("all", pulled(world.pull(0, 0)));
        seen.put("two", pulled(world.pull(0, 0, "maxMsgNums", 2)));
        seen.put("the last", pulled(world.pull(0, 4)));
        seen.put("messages", Observed.messages(World.decode(world.pull(0, 3))));
    }

    private static void pullReplyFields(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        seen.reply("found", world.pull(0, 0));
        seen.reply("nothing new", world.pull(0, 1));
        seen.reply("lite", world.call(RequestCode.LITE_PULL_MESSAGE, null, world.pullFields(world.topic(), 0, 0)));
    }

    private static void pullCountLimits(World world, Observed seen) throws Exception {
        world.createTopic(1);
        List<Message> batch = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            batch.add(world.message("n-" + n));
        }
        world.producer().send(batch, world.queue(0));
        world.settle();
        for (int count : new int[] {1, 31, 32, 33, 64, 1000, 0, -1}) {
            RemotingCommand reply = world.pull(0, 0, "maxMsgNums", count);
            seen.put("asked for " + count, reply.getCode() == 0
                ? World.decode(reply).size() + ", then " + reply.getExtFields().get("nextBeginOffset") : reply.getCode());
        }
    }

    private static void pullEmptyQueue(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "in the other queue");
        for (long offset : new long[] {0, 1, 5, -1}) {
            seen.put("offset " + offset, pulled(world.pull(1, offset)));
        }
    }

    private static void pullOffsetTooSmall(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b");
        seen.put("offset -1", pulled(world.pull(0, -1)));
        seen.put("offset -100", pulled(world.pull(0, -100)));
    }

    private static void pullOffsetOverflow(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b");
        seen.put("by one", pulled(world.pull(0, 2)));
        seen.put("by two", pulled(world.pull(0, 3)));
        seen.put("badly", pulled(world.pull(0, 1_000_000)));
        seen.put("most of all", pulled(world.pull(0, Long.MAX_VALUE)));
    }

    private static void pullTagFilter(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "green", "blue", "red", null, "Aa", "BB");
        for (String expression : new String[] {"red", "red || blue", "red||green", " red ", "*", "", "|| red", "none",
            "Aa", "red|blue", "red || * || blue"}) {
            seen.put("<" + expression + ">", pulled(world.pull(0, 0, "subscription", expression)));
        }
        seen.put("null", pulled(world.pull(0, 0, "subscription", null)));
    }

    private static void pullFilteredBatch(World world, Observed seen) throws Exception {
        world.createTopic(1);
        List<Message> batch = new ArrayList<>();
        for (int n = 0; n < 60; n++) {
            Message message = world.message("n-" + n);
            message.setTags(n == 50 ? "wanted" : "other");
            batch.add(message);
        }
        world.producer().send(batch, world.queue(0));
        world.settle();
        seen.put("nothing wanted", pulled(world.pull(0, 0, "subscription", "none", "maxMsgNums", 10)));
        seen.put("one wanted", pulled(world.pull(0, 0, "subscription", "wanted", "maxMsgNums", 10)));
        seen.put("behind it", pulled(world.pull(0, 51, "subscription", "wanted", "maxMsgNums", 10)));
        seen.put("one of many", pulled(world.pull(0, 0, "subscription", "other", "maxMsgNums", 1)));
        seen.put("sql nothing wanted", pulled(world.pull(0, 0, "subscription", "TAGS = 'none'", "expressionType", "SQL92")));
    }

    @SuppressWarnings("deprecation")
    private static void pullThroughTheClient(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "green", "red");
        DefaultMQPullConsumer consumer = world.pullConsumer();
        for (long offset : new long[] {0, 2, 3, 9}) {
            PullResult result = consumer.pull(world.queue(0), "red", offset, 32);
            Observed told = new Observed();
            told.put("status", result.getPullStatus());
            told.put("next", result.getNextBeginOffset());
            told.put("min", result.getMinOffset());
            told.put("max", result.getMaxOffset());
            told.put("bodies", result.getMsgFoundList() == null ? null : Sending.bodies(result.getMsgFoundList()));
            seen.put("offset " + offset, told);
        }
        seen.put("max", consumer.maxOffset(world.queue(0)));
        seen.put("min", consumer.minOffset(world.queue(0)));
        seen.put("committed", consumer.fetchConsumeOffset(world.queue(0), true));
        consumer.updateConsumeOffset(world.queue(0), 2);
        consumer.getOffsetStore().persist(world.queue(0));
        seen.put("committed then", committed(world, 0, "2"));
    }

    // --- what is refused -------------------------------------------------------------------------------

    private static void pullUnknownTopic(World world, Observed seen) throws Exception {
        seen.put("reply", codeAndRemark(world.pull(0, 0)));
        seen.put("illegal name", codeAndRemark(
            world.call(RequestCode.PULL_MESSAGE, null, world.pullFields("../up", 0, 0))));
    }

    private static void pullUnknownGroup(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        seen.put("reply", pulled(world.pull(0, 0)));
        seen.put("group made", Sending.groupConfig(world, world.group()));
        for (String group : new String[] {"with space", "../up", "gr\u00fcn"}) {
            seen.put("<" + group + ">", codeAndRemark(world.pull(0, 0, "consumerGroup", group)));
        }
        StringBuilder longName = new StringBuilder("g");
        while (longName.length() < 300) {
            longName.append("x");
        }
        for (int length : new int[] {120, 121, 255, 256}) {
            seen.put("group of " + length, pulled(world.pull(0, 0, "consumerGroup", longName.substring(0, length))));
        }
    }

    private static void pullIllegalQueue(World world, Observed seen) throws Exception {
        world.createTopic(world.topic(), 2, 4, World.READ_WRITE);
        for (int queueId : new int[] {1, 2, 4, -1}) {
            seen.put("queue " + queueId, codeAndRemark(world.pull(queueId, 0)));
        }
    }

    private static void pullNoReadPermission(World world, Observed seen) throws Exception {
        world.createTopic(world.topic(), 1, 1, 2);
        seen.reply("reply", world.pull(0, 0));
    }

    private static void pullGroupDisabled(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Sending.saveGroup(world, world.group(), 1, 16, "consumeEnable", false);
        seen.reply("reply", world.pull(0, 0));
        Sending.saveGroup(world, world.group(), 1, 16, "consumeEnable", true);
        seen.put("enabled again", codeAndRemark(world.pull(0, 0)));
    }

    private static void pullBroadcastDisabled(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        Sending.saveGroup(world, world.group(), 1, 16, "consumeBroadcastEnable", false);
        heartbeat(world.newRaw(), "member", consumer(world.group(), MessageModel.BROADCASTING, subscription(world.topic(), "*", 1)));
        seen.reply("broadcasting", world.pull(0, 0, "sysFlag", 0));
        seen.put("own subscription", pulled(world.pull(0, 0)));
    }

    private static void pullWithoutHeartbeat(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.reply("reply", world.pull(0, 0, "sysFlag", 0));
    }

    private static void pullNotSubscribed(World world, Observed seen) throws Exception {
        world.createTopic(1);
        heartbeat(world.newRaw(), "member",
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic() + "-other", "*", 1)));
        seen.reply("reply", world.pull(0, 0, "sysFlag", 0));
    }

    private static void pullSubscriptionStale(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "green");
        heartbeat(world.newRaw(), "member",
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "green", 100)));
        for (long version : new long[] {0, 99, 100, 101}) {
            seen.put("version " + version, pulled(world.pull(0, 0, "sysFlag", 0, "subVersion", version)));
        }
    }

    private static void pullBadSubscription(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        for (String expression : new String[] {"||", " ", "| |"}) {
            seen.put("tags <" + expression + ">", codeAndRemark(world.pull(0, 0, "subscription", expression)));
        }
        for (String expression : new String[] {"a >", "", "a > 1 AND", "1"}) {
            seen.put("sql <" + expression + ">",
                codeAndRemark(world.pull(0, 0, "subscription", expression, "expressionType", "SQL92")));
        }
        seen.put("unknown type", codeAndRemark(world.pull(0, 0, "subscription", "x", "expressionType", "XPATH")));
        seen.put("no type", pulled(world.pull(0, 0, "subscription", "*", "expressionType", null)));
    }

    // --- what else a pull does -------------------------------------------------------------------------

    private static void pullCommitsOffset(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b", "c");
        world.pull(0, 0, "sysFlag", OWN_SUBSCRIPTION, "commitOffset", 1);
        seen.put("without the flag", queryOffset(world, world.group(), 0, false));
        world.pull(0, 0, "sysFlag", OWN_SUBSCRIPTION | COMMIT, "commitOffset", 2);
        seen.put("with it", queryOffset(world, world.group(), 0, false));
        world.pull(0, 0, "sysFlag", OWN_SUBSCRIPTION | COMMIT, "commitOffset", -1);
        seen.put("a negative one", queryOffset(world, world.group(), 0, false));
        world.pull(0, 99, "sysFlag", OWN_SUBSCRIPTION | COMMIT, "commitOffset", 3);
        seen.put("in a pull of nothing", queryOffset(world, world.group(), 0, false));
    }

    private static void pullSuggestedBroker(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        Sending.saveGroup(world, world.group(), 1, 16, "brokerId", 3, "whichBrokerWhenConsumeSlowly", 2);
        seen.put("found", world.pull(0, 0).getExtFields().get("suggestWhichBrokerId"));
        seen.put("nothing", world.pull(0, 1).getExtFields().get("suggestWhichBrokerId"));
    }

    // --- long polling ----------------------------------------------------------------------------------

    private static void longPollWakes(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "old");
        CompletableFuture<Observed> waiting = pullLater(world, 0, 1, 14_000);
        Thread.sleep(2500);  // long enough for it to have come there on a busy machine
        seen.put("waits", !waiting.isDone());
        world.fill(1, "in another queue");
        Thread.sleep(500);
        seen.put("waits on", !waiting.isDone());
        long sent = System.nanoTime();
        world.fill(0, "new");
        seen.put("reply", waiting.get(10, TimeUnit.SECONDS));
        seen.put("at once", System.nanoTime() - sent < TimeUnit.SECONDS.toNanos(3));
    }

    private static void longPollEnds(World world, Observed seen) throws Exception {
        world.createTopic(1);
        long started = System.nanoTime();
        seen.put("reply", pullLater(world, 0, 0, 1500).get(20, TimeUnit.SECONDS));
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - started);
        seen.put("waited as long as asked", seconds >= 1 && seconds <= 9);
    }

    private static void longPollOtherTag(World world, Observed seen) throws Exception {
        world.createTopic(1);
        CompletableFuture<RemotingCommand> waiting = pullUntilFound(world, "wanted");
        Thread.sleep(2500);
        sendTagged(world, "other");
        Thread.sleep(1000);
        seen.put("found too early", waiting.isDone());
        sendTagged(world, "wanted");
        seen.put("reply", pulled(waiting.get(15, TimeUnit.SECONDS)));
    }

    /** Pulls on where it was told to: Apache looks at all who wait every 5 seconds, and sends them on. */
    private static CompletableFuture<RemotingCommand> pullUntilFound(World world, String tag) {
        World.Raw raw = world.newRaw();
        return CompletableFuture.supplyAsync(() -> {
            try {
                long offset = 0;
                while (true) {
                    RemotingCommand reply = raw.call(RequestCode.PULL_MESSAGE, null, world.pullFields(world.topic(), 0, offset,
                        "subscription", tag, "sysFlag", OWN_SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis", 10_000));
                    if (reply.getCode() == 0) {
                        return reply;
                    }
                    offset = Long.parseLong(reply.getExtFields().get("nextBeginOffset"));
                }
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private static void longPollOnlyAtTheEnd(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "red");
        int flags = OWN_SUBSCRIPTION | SUSPEND;
        long started = System.nanoTime();
        seen.put("beyond the end", pulled(world.pull(0, 9, "sysFlag", flags, "suspendTimeoutMillis", 10_000)));
        seen.put("before the start", pulled(world.pull(0, -1, "sysFlag", flags, "suspendTimeoutMillis", 10_000)));
        seen.put("filtered", pulled(world.pull(
            0, 0, "sysFlag", flags, "suspendTimeoutMillis", 10_000, "subscription", "green")));
        seen.put("at once", System.nanoTime() - started < TimeUnit.SECONDS.toNanos(5));
    }

    private static CompletableFuture<Observed> pullLater(
        World world, int queueId, long offset, int millis, Object... more) {
        World.Raw raw = world.newRaw();
        Object[] fields = world.pullFields(world.topic(), queueId, offset, more);
        Object[] suspended = Arrays.copyOf(fields, fields.length + 4);
        System.arraycopy(new Object[] {"sysFlag", OWN_SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis", millis}, 0,
            suspended, fields.length, 4);
        return CompletableFuture.supplyAsync(() -> {
            try {
                return pulled(raw.call(RequestCode.PULL_MESSAGE, null, suspended));
            } catch (Exception e) {
                return Observed.failure(e);
            }
        });
    }

    // --- SQL92 -----------------------------------------------------------------------------------------

    private static final String[] EXPRESSIONS = {
        "a = 1", "a <> 1", "a > 1", "a >= 2", "a < 2.5", "a BETWEEN 1 AND 2", "a NOT BETWEEN 1 AND 2",
        "a IN ('1', '2')", "colour IN ('red', 'blue')", "colour NOT IN ('red', 'blue')", "colour = 'red'",
        "colour <> 'red'", "colour IS NULL", "colour IS NOT NULL", "a IS NULL", "NOT (a = 1)", "NOT colour = 'red'",
        "a = 1 AND colour = 'red'", "a = 1 OR colour = 'blue'", "a = 1 OR colour IS NULL", "a > 1 AND colour <> 'red'",
        "flag = TRUE", "flag = FALSE", "flag <> TRUE", "flag", "NOT flag", "a = '1'", "a > '1'", "a = 1.0", "a = -1",
        "a > -1", "colour > 'blue'", "colour > 5", "TRUE", "FALSE", "1 = 1", "NULL IS NULL", "a = b", "a <> b",
        "missing = 1", "missing <> 1", "NOT (missing = 1)", "missing = 1 OR a = 1", "missing > 1 AND a = 1",
        "missing IN ('x')", "missing NOT IN ('x')", "missing BETWEEN 1 AND 2", "TAGS = 'red'", "KEYS = 'k1'",
        "a = 1 OR a = 2 AND colour = 'red'", "(a = 1 OR a = 2) AND colour = 'red'", "colour CONTAINS 'e'",
        "colour NOT CONTAINS 'e'", "colour STARTSWITH 'r'", "colour NOT STARTSWITH 'r'", "colour ENDSWITH 'd'",
        "colour NOT ENDSWITH 'd'", "missing CONTAINS 'e'", "a CONTAINS '1'", "a = 0x1", "a = 1e0", "a > 9223372036854775807",
        "a between 1 and 2", "colour is null", "colour = 'it''s'", "flag is not null and flag = true", "a = +1", "a + 1 = 2"};

    private static void sqlExpressions(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sqlMessages(world);
        for (String expression : EXPRESSIONS) {
            RemotingCommand reply = world.pull(0, 0, "subscription", expression, "expressionType", "SQL92");
            seen.put(expression, reply.getCode() == 0 ? Sending.bodies(World.decode(reply)) : "code " + reply.getCode());
        }
    }

    private static void sqlMessages(World world) throws Exception {
        String[][] messages = {
            {"a", "1", "colour", "red", "flag", "true"}, {"a", "2", "colour", "blue", "flag", "false"},
            {"a", "2", "colour", "red", "b", "2"}, {"a", "3", "colour", "green", "b", "2"}, {"a", "1"},
            {"colour", "red"}, {"a", "2.5", "flag", "TRUE"}, {"a", "-1", "colour", "it's"}, {"a", "one", "colour", "7"},
            {"a", "", "colour", ""}, {"flag", "maybe"}, {}};
        for (int n = 0; n < messages.length; n++) {
            Message message = world.message("m" + n);
            for (int i = 0; i < messages[n].length; i += 2) {
                if (messages[n][i + 1].isEmpty()) {
                    continue;
                }
                message.putUserProperty(messages[n][i], messages[n][i + 1]);
            }
            message.setTags(n % 2 == 0 ? "red" : "green");
            message.setKeys("k" + n);
            world.producer().send(message, world.queue(0));
        }
        world.settle();
    }

    private static final String[] DOUBTFUL = {
        "a > 1", "a >", "", " ", "1", "a", "'x'", "a = ", "a == 1", "a BETWEEN 2 AND 1", "a IN ()", "a IN (1, 2)",
        "a IN ('x',)", "a LIKE 'x%'", "(a = 1", "a = 1)", "a = 1 garbage", "a = 'open", "a AND b", "a > TRUE", "TRUE > FALSE",
        "'x' > 'y'", "a = 1 AND", "OR a = 1", "NOT", "a IS", "a IS NOT", "a IS NULL IS NULL", "1 > a", "1 = 'x'", "TRUE = 'x'",
        "a > 99999999999999999999", "a > 1e400", "a CONTAINS 1", "a CONTAINS ''", "a STARTSWITH", "a BETWEEN 'x' AND 'y'",
        "a BETWEEN 1", "-a = 1", "a = --1", "\"a\" = 1", "a.b = 1", "a-b = 1", "a:b = 1", "$a = 1", "_a = 1", "1a = 1", "a # 1",
        "a = 1 -- comment", "a = 1 /* comment */", "a = 1;", "a = NULL", "NULL", "a <> NULL", "a > NULL"};

    private static void sqlCheck(World world, Observed seen) throws Exception {
        for (String expression : DOUBTFUL) {
            SubscriptionData subscription = subscription(world.topic(), expression, 1);
            subscription.setExpressionType("SQL92");
            seen.put(expression, codeAndRemark(checkClient(world, subscription)));
        }
        SubscriptionData other = subscription(world.topic(), "x", 1);
        other.setExpressionType("XPATH");
        seen.put("type XPATH", codeAndRemark(checkClient(world, other)));
        seen.put("type TAG", codeAndRemark(checkClient(world, subscription(world.topic(), "a || b", 1))));
        seen.put("no body", codeAndRemark(world.call(RequestCode.CHECK_CLIENT_CONFIG, null)));
    }

    private static RemotingCommand checkClient(World world, SubscriptionData subscription) throws Exception {
        CheckClientRequestBody body = new CheckClientRequestBody();
        body.setClientId("client");
        body.setGroup(world.group());
        body.setSubscriptionData(subscription);
        return world.call(RequestCode.CHECK_CLIENT_CONFIG, body.encode());
    }

    private static void sqlPush(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sqlMessages(world);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), MessageSelector.bySql("a >= 2 AND colour IS NOT NULL"));
        seen.put("received", receive(world, consumer, 3));
    }

    private static void sqlBadInHeartbeat(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        SubscriptionData bad = subscription(world.topic(), "a >", 5);
        bad.setExpressionType("SQL92");
        seen.put("heartbeat", codeAndRemark(
            heartbeat(world.newRaw(), "member", consumer(world.group(), MessageModel.CLUSTERING, bad))));
        seen.reply("pull", world.pull(0, 0, "sysFlag", 0, "subVersion", 5));
    }

    private static void sqlBadThroughTheClient(World world, Observed seen) throws Exception {
        world.createTopic(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), MessageSelector.bySql("a > 1 AND"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        seen.attempt("start", () -> {
            world.start(consumer, "consumer-" + world.name);
            return "started";
        });
    }

    // --- consumers of the public API -------------------------------------------------------------------

    private static void pushTags(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "green", "Aa", "BB", "blue", "red");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), "red || Aa");
        seen.put("received", receive(world, consumer, 3));
    }

    private static void pushGoesOn(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a0", "a1");
        world.fill(1, "b0");
        DefaultMQPushConsumer first = new DefaultMQPushConsumer(world.group());
        first.subscribe(world.topic(), "*");
        seen.put("first", receive(world, first, 3));
        first.shutdown();
        seen.put("committed 0", committed(world, 0, "2"));
        seen.put("committed 1", committed(world, 1, "1"));
        world.fill(0, "a2");
        DefaultMQPushConsumer second = new DefaultMQPushConsumer(world.group());
        second.subscribe(world.topic(), "*");
        seen.put("second", receive(world, second, 1));
    }

    private static void pushFromLast(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "old");
        List<String> received = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(Sending.bodies(messages));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.start(consumer, "consumer-" + world.name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Thread.sleep(2000);
        world.fill(0, "new");
        waitFor(() -> received.contains("new"));
        // On a queue that still has its first message a new group starts there, whatever it asks for.
        seen.put("received", new ArrayList<>(received));
    }

    private static void pushTwoMembers(World world, Observed seen) throws Exception {
        world.createTopic(4);
        Map<String, Set<Integer>> queues = new ConcurrentHashMap<>();
        AtomicInteger received = new AtomicInteger();
        for (String name : new String[] {"one", "two"}) {
            queues.put(name, ConcurrentHashMap.newKeySet());
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
            consumer.subscribe(world.topic(), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    queues.get(name).add(message.getQueueId());
                }
                received.addAndGet(messages.size());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            world.start(consumer, "member-" + name + "-" + world.name);
        }
        Thread.sleep(3000);  // both have shared the queues between them
        for (int queueId = 0; queueId < 4; queueId++) {
            world.fill(queueId, "a", "b");
        }
        waitFor(() -> received.get() >= 8);
        Thread.sleep(500);
        seen.put("received", received.get());
        seen.put("one", new TreeSet<>(queues.get("one")));
        seen.put("two", new TreeSet<>(queues.get("two")));
    }

    private static void pushBroadcast(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b");
        List<String> received = Collections.synchronizedList(new ArrayList<>());
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
            consumer.setMessageModel(org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel.BROADCASTING);
            consumer.subscribe(world.topic(), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (String body : Sending.bodies(messages)) {
                    received.add(name + ":" + body);
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            world.start(consumer, "member-" + name + "-" + world.name);
            members.add(consumer);
        }
        seen.put("received", received);
        waitFor(() -> received.size() >= 4);
        world.fill(0, "c");
        waitFor(() -> received.size() >= 6);
        Thread.sleep(1500);  // offsets would have been committed by now
        for (DefaultMQPushConsumer member : members) {
            member.shutdown();
        }
        seen.put("received", new TreeSet<>(received));
        seen.put("committed", queryOffset(world, world.group(), 0, false));
    }

    private static void litePull(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b", "c");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(world.group());
        consumer.setNamesrvAddr(world.nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("lite-" + world.name);
        consumer.setAutoCommit(false);
        consumer.start();
        world.onClose(consumer::shutdown);
        consumer.assign(Arrays.asList(world.queue(0)));
        consumer.seekToBegin(world.queue(0));
        seen.put("from the start", poll(consumer, 3));
        consumer.seek(world.queue(0), 1);
        seen.put("from the second", poll(consumer, 2));
        consumer.commit(new HashSet<>(Arrays.asList(world.queue(0))), true);
        seen.put("committed", committed(world, 0, "3"));
        consumer.seekToEnd(world.queue(0));
        world.fill(0, "d");
        seen.put("from the end", poll(consumer, 1));
        seen.put("offset for time", consumer.offsetForTimestamp(world.queue(0), 0L));
    }

    private static List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> bodies = new ArrayList<>();
        for (int i = 0; i < 20 && bodies.size() < count; i++) {
            bodies.addAll(Sending.bodies(consumer.poll(500)));
        }
        return bodies;
    }

    private static List<String> receive(World world, DefaultMQPushConsumer consumer, int count) throws Exception {
        List<String> received = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(Sending.bodies(messages));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        world.start(consumer, "consumer-" + received.hashCode() + System.nanoTime());
        waitFor(() -> received.size() >= count);
        Thread.sleep(1200);  // one too many would come now, and offsets are committed
        List<String> sorted = new ArrayList<>(received);
        Collections.sort(sorted);  // several threads consume
        return sorted;
    }

    // --- groups and their members ----------------------------------------------------------------------

    private static void heartbeatReply(World world, Observed seen) throws Exception {
        World.Raw raw = world.newRaw();
        ConsumerData consumer = consumer(world.group(), MessageModel.CLUSTERING, subscription("any", "*", 1));
        seen.reply("first", heartbeat(raw, "member", consumer));
        seen.reply("second", heartbeat(raw, "member", consumer));
        HeartbeatData producers = new HeartbeatData();
        producers.setClientID("producer");
        ProducerData producer = new ProducerData();
        producer.setGroupName("some-producers");
        producers.getProducerDataSet().add(producer);
        seen.reply("producer", raw.call(RequestCode.HEART_BEAT, producers.encode()));
        HeartbeatData nobody = new HeartbeatData();
        nobody.setClientID("nobody");
        seen.reply("empty", raw.call(RequestCode.HEART_BEAT, nobody.encode()));
        seen.reply("goodbye", raw.call(RequestCode.UNREGISTER_CLIENT, null,
            "clientID", "member", "consumerGroup", world.group()));
        seen.reply("goodbye again", raw.call(RequestCode.UNREGISTER_CLIENT, null,
            "clientID", "member", "consumerGroup", world.group()));
        seen.reply("producer's goodbye", raw.call(RequestCode.UNREGISTER_CLIENT, null,
            "clientID", "producer", "producerGroup", "some-producers"));
    }

    private static void heartbeatShortForm(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        World.Raw raw = world.newRaw();
        HeartbeatData whole = new HeartbeatData();
        whole.setClientID("member");
        whole.setHeartbeatFingerprint(77);
        whole.getConsumerDataSet().add(
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1)));
        seen.reply("whole", raw.call(RequestCode.HEART_BEAT, whole.encode()));
        HeartbeatData small = new HeartbeatData();
        small.setClientID("member");
        small.setHeartbeatFingerprint(77);
        small.setWithoutSub(true);
        small.getConsumerDataSet().add(consumer(world.group(), MessageModel.CLUSTERING));
        seen.reply("short", raw.call(RequestCode.HEART_BEAT, small.encode()));
        seen.put("pull", pulled(world.pull(0, 0, "sysFlag", 0)));
        small.setHeartbeatFingerprint(78);
        seen.reply("short with another fingerprint", raw.call(RequestCode.HEART_BEAT, small.encode()));
        seen.put("pull then", pulled(world.pull(0, 0, "sysFlag", 0)));
    }

    private static void heartbeatBad(World world, Observed seen) throws Exception {
        seen.put("garbage", codeAndRemark(world.call(RequestCode.HEART_BEAT, "garbage".getBytes(StandardCharsets.UTF_8))));
        seen.put("no body", codeAndRemark(world.call(RequestCode.HEART_BEAT, null)));
    }

    private static void membersAndNotifications(World world, Observed seen) throws Exception {
        ConsumerData data = consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1));
        seen.put("nobody", codeAndRemark(world.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, null, "consumerGroup", world.group())));
        World.Raw one = world.newRaw();
        heartbeat(one, "one", data);
        seen.put("alone", members(world));
        seen.put("told alone", told(one));
        World.Raw two = world.newRaw();
        heartbeat(two, "two", data);
        seen.put("two", members(world));
        seen.put("one is told of two", told(one));
        seen.put("two is told of itself", told(two));
        heartbeat(two, "two", data);
        seen.put("a repetition is no news", told(one));
        ConsumerData changed = consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1),
            subscription(world.topic() + "-more", "*", 2));
        heartbeat(two, "two", changed);
        seen.put("a new topic is news", told(one));
        two.call(RequestCode.UNREGISTER_CLIENT, null, "clientID", "two", "consumerGroup", world.group());
        seen.put("left", members(world));
        seen.put("one is told of leaving", told(one));
        heartbeat(two, "two", data);
        told(one);
        two.close();
        waitFor(() -> members(world).size() == 1);
        seen.put("gone", members(world));
        seen.put("one is told of the connection's end", told(one));
    }

    private static void membersConnections(World world, Observed seen) throws Exception {
        World.Raw one = world.newRaw();
        heartbeat(one, "one", consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "red || blue", 7)));
        RemotingCommand reply = world.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, null, "consumerGroup", world.group());
        seen.put("code", reply.getCode());
        JSONObject body = JSON.parseObject(new String(reply.getBody(), StandardCharsets.UTF_8));
        seen.put("connections", new TreeMap<>(body.getJSONArray("connectionSet").getJSONObject(0)));
        for (String name : new String[] {"consumeType", "messageModel", "consumeFromWhere"}) {
            seen.put(name, body.get(name));
        }
        JSONObject subscription = body.getJSONObject("subscriptionTable").getJSONObject(world.topic());
        subscription.put("tagsSet", new TreeSet<>(subscription.getJSONArray("tagsSet")));
        subscription.put("codeSet", new TreeSet<>(subscription.getJSONArray("codeSet")));
        seen.put("subscription", new TreeMap<>(subscription));
        seen.put("nobody", codeAndRemark(
            world.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, null, "consumerGroup", world.group() + "-none")));
    }

    private static void membersNotificationsOff(World world, Observed seen) throws Exception {
        Sending.saveGroup(world, world.group(), 1, 16, "notifyConsumerIdsChangedEnable", false);
        ConsumerData data = consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1));
        World.Raw one = world.newRaw();
        heartbeat(one, "one", data);
        heartbeat(world.newRaw(), "two", data);
        seen.put("told", told(one));
    }

    private static void membersDisagree(World world, Observed seen) throws Exception {
        world.createTopic(1);
        sendTagged(world, "red", "green");
        heartbeat(world.newRaw(), "one",
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "red", 1)));
        seen.put("first", pulled(world.pull(0, 0, "sysFlag", 0)));
        seen.put("second's heartbeat", codeAndRemark(heartbeat(world.newRaw(), "two",
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "green", 2)))));
        seen.put("then", pulled(world.pull(0, 0, "sysFlag", 0)));
        seen.put("older version again", codeAndRemark(heartbeat(world.newRaw(), "three",
            consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "red", 1)))));
        seen.put("at last", pulled(world.pull(0, 0, "sysFlag", 0)));
        seen.put("another model", codeAndRemark(heartbeat(world.newRaw(), "four",
            consumer(world.group(), MessageModel.BROADCASTING, subscription(world.topic(), "green", 2)))));
    }

    private static List<String> members(World world) throws Exception {
        RemotingCommand reply = world.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, null, "consumerGroup", world.group());
        JSONArray ids = JSON.parseObject(new String(reply.getBody(), StandardCharsets.UTF_8)).getJSONArray("consumerIdList");
        return new ArrayList<>(new TreeSet<>(ids.toJavaList(String.class)));
    }

    /** What the broker asked of this connection until it was quiet; repetitions count once. */
    private static Set<String> told(World.Raw raw) throws Exception {
        Set<String> told = new TreeSet<>();
        RemotingCommand request;
        while ((request = raw.asked.poll(1200, TimeUnit.MILLISECONDS)) != null) {
            told.add(request.getCode() + " " + new TreeMap<>(request.getExtFields()) + (request.isOnewayRPC() ? " one-way" : ""));
        }
        return told;
    }

    // --- offsets ---------------------------------------------------------------------------------------

    private static void offsetQuery(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a");
        seen.put("new group", queryOffset(world, world.group(), 0, null));
        seen.put("new group, not zero", queryOffset(world, world.group(), 0, false));
        seen.put("new group, zero", queryOffset(world, world.group(), 0, true));
        seen.put("empty queue", queryOffset(world, world.group(), 1, null));
        seen.put("no such queue", queryOffset(world, world.group(), 9, null));
        seen.put("no such topic", codeAndRemark(world.call(RequestCode.QUERY_CONSUMER_OFFSET, null,
            "consumerGroup", world.group(), "topic", "no-such-topic", "queueId", 0)));
    }

    private static void offsetUpdate(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a", "b");
        Sending.saveGroup(world, world.group(), 1, 16);
        seen.reply("update", updateOffset(world, world.topic(), 0, 1));
        seen.put("offset", queryOffset(world, world.group(), 0, null));
        seen.reply("beyond the end", updateOffset(world, world.topic(), 0, 500));
        seen.put("offset then", queryOffset(world, world.group(), 0, null));
        seen.reply("empty queue", updateOffset(world, world.topic(), 1, 3));
        seen.put("offset of the empty queue", queryOffset(world, world.group(), 1, null));
    }

    private static void offsetUpdateRefused(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.put("no such group", codeAndRemark(updateOffset(world, world.topic(), 0, 1)));
        Sending.saveGroup(world, world.group(), 1, 16);
        seen.put("no such topic", codeAndRemark(updateOffset(world, "no-such-topic", 0, 1)));
        seen.put("no such queue", codeAndRemark(updateOffset(world, world.topic(), 9, 1)));
        seen.put("offset of no queue", queryOffset(world, world.group(), 9, null));
        seen.put("negative", codeAndRemark(updateOffset(world, world.topic(), 0, -1)));
        seen.put("offset after a negative", queryOffset(world, world.group(), 0, null));
        seen.put("no offset", codeAndRemark(world.call(RequestCode.UPDATE_CONSUMER_OFFSET, null,
            "consumerGroup", world.group(), "topic", world.topic(), "queueId", 0)));
    }

    private static void offsetBackwards(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a", "b", "c");
        Sending.saveGroup(world, world.group(), 1, 16);
        updateOffset(world, world.topic(), 0, 3);
        updateOffset(world, world.topic(), 0, 1);
        seen.put("offset", queryOffset(world, world.group(), 0, null));
    }

    private static void offsetLimits(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a", "b");
        for (int code : new int[] {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET}) {
            for (int queueId : new int[] {0, 1, 9}) {
                seen.reply(code + " of queue " + queueId, world.call(code, null, "topic", world.topic(), "queueId", queueId));
            }
            seen.reply(code + " of no topic", world.call(code, null, "topic", "no-such-topic", "queueId", 0));
        }
    }

    private static void offsetResetByTime(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a", "b", "c");
        Sending.saveGroup(world, world.group(), 1, 16);
        updateOffset(world, world.topic(), 0, 3);
        RemotingCommand reply = reset(world, "timestamp", 0, "isForce", true);
        seen.put("code", reply.getCode());
        seen.put("queues", offsets(reply));
        seen.put("pull is sent back", pulled(world.pull(0, 3)));
        seen.put("and then goes on", pulled(world.pull(0, 0)));
        seen.put("offset", queryOffset(world, world.group(), 0, null));
        reply = reset(world, "timestamp", -1, "isForce", true);
        seen.put("to the end", offsets(reply));
        reply = reset(world, "timestamp", System.currentTimeMillis() + 3_600_000, "isForce", true);
        seen.put("to the future", offsets(reply));
    }

    private static void offsetResetByPlace(World world, Observed seen) throws Exception {
        world.createTopic(2);
        world.fill(0, "a", "b", "c");
        Sending.saveGroup(world, world.group(), 1, 16);
        updateOffset(world, world.topic(), 0, 3);
        RemotingCommand reply = reset(world, "timestamp", 0, "isForce", true, "queueId", 0, "offset", 1);
        seen.put("code", reply.getCode());
        seen.put("queues", offsets(reply));
        seen.put("commit meanwhile", updateOffset(world, world.topic(), 0, 3).getCode());
        seen.put("offset", queryOffset(world, world.group(), 0, null));
        seen.put("pull is sent back", pulled(world.pull(0, 3)));
        seen.put("only once", pulled(world.pull(0, 3)));
    }

    private static void offsetResetRefused(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "a");
        seen.put("no such group", codeAndRemark(reset(world, "timestamp", 0, "isForce", true)));
        Sending.saveGroup(world, world.group(), 1, 16);
        updateOffset(world, world.topic(), 0, 1);
        seen.put("no such queue", codeAndRemark(reset(world, "timestamp", 0, "isForce", true, "queueId", 7)));
        seen.put("beyond the end", codeAndRemark(reset(world, "timestamp", 0, "isForce", true, "queueId", 0, "offset", 77)));
        seen.put("no such topic", codeAndRemark(world.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, null,
            "topic", "no-such-topic", "group", world.group(), "timestamp", 0, "isForce", true)));
    }

    private static RemotingCommand reset(World world, Object... more) throws Exception {
        Object[] usual = {"topic", world.topic(), "group", world.group()};
        Object[] all = Arrays.copyOf(usual, usual.length + more.length);
        System.arraycopy(more, 0, all, usual.length, more.length);
        return world.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, null, all);
    }

    /** The body of a reset has objects for keys: as text, queues in order. */
    private static Object offsets(RemotingCommand reply) {
        if (reply.getBody() == null) {
            return reply.getCode();
        }
        org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody body =
            org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody.decode(
                reply.getBody(), org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody.class);
        Map<String, Long> offsets = new TreeMap<>();
        for (Map.Entry<MessageQueue, Long> entry : body.getOffsetTable().entrySet()) {
            offsets.put("queue " + entry.getKey().getQueueId(), entry.getValue());
        }
        return offsets;
    }

    private static RemotingCommand updateOffset(World world, String topic, int queueId, long offset) throws Exception {
        return world.call(RequestCode.UPDATE_CONSUMER_OFFSET, null, "consumerGroup", world.group(), "topic", topic,
            "queueId", queueId, "commitOffset", offset);
    }

    private static Object queryOffset(World world, String group, int queueId, Boolean zeroIfNew) throws Exception {
        RemotingCommand reply = world.call(RequestCode.QUERY_CONSUMER_OFFSET, null, "consumerGroup", group,
            "topic", world.topic(), "queueId", queueId, "setZeroIfNotFound", zeroIfNew);
        return reply.getCode() == 0 ? reply.getExtFields().get("offset") : "code " + reply.getCode();
    }

    /** Clients commit without waiting for an answer: look until it is what it should be, or was long enough not. */
    private static Object committed(World world, int queueId, String expected) throws Exception {
        for (int i = 0; i < 100 && !expected.equals(queryOffset(world, world.group(), queueId, false)); i++) {
            Thread.sleep(50);
        }
        return queryOffset(world, world.group(), queueId, false);
    }

    // --- queues for one at a time ----------------------------------------------------------------------

    private static void lockByTwo(World world, Observed seen) throws Exception {
        world.createTopic(4);
        ConsumerData data = consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1));
        World.Raw one = world.newRaw();
        World.Raw two = world.newRaw();
        heartbeat(one, "one", data);
        heartbeat(two, "two", data);
        seen.put("one locks", lock(world, one, "one", 0, 1));
        seen.put("two gets the rest", lock(world, two, "two", 0, 1, 2));
        seen.put("one again", lock(world, one, "one", 0, 1, 2));
        seen.put("one gives back", codeAndRemark(unlock(world, one, "one", 0)));
        seen.put("two takes it", lock(world, two, "two", 0, 1));
        seen.put("two gives back what it has not", codeAndRemark(unlock(world, two, "two", 1)));
        seen.put("one still has it", lock(world, two, "two", 1));
        seen.put("nothing wanted", lock(world, one, "one"));
    }

    private static void lockOtherGroups(World world, Observed seen) throws Exception {
        world.createTopic(1);
        World.Raw one = world.newRaw();
        heartbeat(one, "one", consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1)),
            consumer(world.group() + "-2", MessageModel.CLUSTERING, subscription(world.topic(), "*", 1)));
        seen.put("in one group", lock(world, one, "one", 0));
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup(world.group() + "-2");
        body.setClientId("one");
        body.setMqSet(new HashSet<>(Arrays.asList(world.queue(0))));
        seen.put("in the other", locked(one.call(RequestCode.LOCK_BATCH_MQ, body.encode())));
    }

    private static void lockQueuesUnknown(World world, Observed seen) throws Exception {
        world.createTopic(1);
        World.Raw one = world.newRaw();
        heartbeat(one, "one", consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1)));
        seen.put("queue 9 of 1", lock(world, one, "one", 0, 9));
        seen.put("no body", codeAndRemark(one.call(RequestCode.LOCK_BATCH_MQ, null)));
    }

    private static void lockByAStranger(World world, Observed seen) throws Exception {
        world.createTopic(1);
        World.Raw raw = world.newRaw();
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup(world.group());
        body.setClientId("stranger");
        body.setMqSet(new HashSet<>(Arrays.asList(world.queue(0))));
        seen.put("lock", codeAndRemark(raw.call(RequestCode.LOCK_BATCH_MQ, body.encode())));
    }

    private static void orderlyConsumer(World world, Observed seen) throws Exception {
        world.createTopic(2);
        for (int n = 0; n < 10; n++) {
            world.fill(n % 2, "m" + n);
        }
        Map<Integer, List<String>> received = new ConcurrentHashMap<>();
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        List<Integer> reconsumeTimes = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch done = new CountDownLatch(10);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            if (body.equals("m4") && tries.merge(body, 1, Integer::sum) <= 2) {
                reconsumeTimes.add(message.getReconsumeTimes());
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            received.computeIfAbsent(message.getQueueId(), queueId -> Collections.synchronizedList(new ArrayList<>()))
                .add(body);
            done.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        world.start(consumer, "consumer-" + world.name);
        seen.put("all came", done.await(40, TimeUnit.SECONDS));
        seen.put("received", new TreeMap<>(received));
        seen.put("tried before", reconsumeTimes);
        World.Raw other = world.newRaw();
        heartbeat(other, "other", consumer(world.group(), MessageModel.CLUSTERING, subscription(world.topic(), "*", 1)));
        seen.put("another gets no lock", lock(world, other, "other", 0, 1));
        consumer.shutdown();
        seen.put("after it left", lock(world, other, "other", 0, 1));
    }

    private static Object lock(World world, World.Raw raw, String clientId, int... queueIds) throws Exception {
        LockBatchRequestBody body = new LockBatchRequestBody();
        body.setConsumerGroup(world.group());
        body.setClientId(clientId);
        body.setMqSet(queues(world, queueIds));
        return locked(raw.call(RequestCode.LOCK_BATCH_MQ, body.encode()));
    }

    private static Object locked(RemotingCommand reply) {
        if (reply.getCode() != 0) {
            return codeAndRemark(reply);
        }
        Set<Integer> queues = new TreeSet<>();
        for (MessageQueue queue : LockBatchResponseBody.decode(reply.getBody(), LockBatchResponseBody.class).getLockOKMQSet()) {
            queues.add(queue.getQueueId());
        }
        return queues;
    }

    private static RemotingCommand unlock(World world, World.Raw raw, String clientId, int... queueIds) throws Exception {
        UnlockBatchRequestBody body = new UnlockBatchRequestBody();
        body.setConsumerGroup(world.group());
        body.setClientId(clientId);
        body.setMqSet(queues(world, queueIds));
        return raw.call(RequestCode.UNLOCK_BATCH_MQ, body.encode());
    }

    private static Set<MessageQueue> queues(World world, int... queueIds) {
        Set<MessageQueue> queues = new HashSet<>();
        for (int queueId : queueIds) {
            queues.add(world.queue(queueId));
        }
        return queues;
    }

    // --- what several need -----------------------------------------------------------------------------

    /** A pull's end: its code, its status (told in the remark but when something was found), offsets and bodies. */
    static Observed pulled(RemotingCommand reply) {
        Observed told = new Observed();
        told.put("code", reply.getCode());
        Map<String, String> fields = reply.getExtFields() == null ? new TreeMap<>() : reply.getExtFields();
        if (reply.getCode() != 0) {
            boolean isStatus = reply.getRemark() != null && fields.containsKey("nextBeginOffset");
            told.put(isStatus ? "status" : "remark", reply.getRemark());
        }
        told.put("next", fields.get("nextBeginOffset"));
        told.put("min", fields.get("minOffset"));
        told.put("max", fields.get("maxOffset"));
        told.put("suggested", fields.get("suggestWhichBrokerId"));
        told.put("bodies", Sending.bodies(World.decode(reply)));
        return told;
    }

    private static Observed codeAndRemark(RemotingCommand reply) {
        return Sending.codeAndRemark(reply);
    }

    private static void sendTagged(World world, String... tags) throws Exception {
        for (String tag : tags) {
            Message message = world.message("tag-" + tag);
            if (tag != null) {
                message.setTags(tag);
            }
            world.producer().send(message, world.queue(0));
        }
        world.settle();
    }

    static SubscriptionData subscription(String topic, String expression, long version) throws Exception {
        SubscriptionData subscription = new SubscriptionData(topic, expression);
        subscription.setSubVersion(version);
        if (!expression.equals("*")) {
            for (String tag : expression.split("\\|\\|")) {
                subscription.getTagsSet().add(tag.trim());
                subscription.getCodeSet().add(tag.trim().hashCode());
            }
        }
        return subscription;
    }

    static ConsumerData consumer(String group, MessageModel model, SubscriptionData... subscriptions) {
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName(group);
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(model);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.getSubscriptionDataSet().addAll(Arrays.asList(subscriptions));
        return consumer;
    }

    static RemotingCommand heartbeat(World.Raw raw, String clientId, ConsumerData... consumers) throws Exception {
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID(clientId);
        heartbeat.getConsumerDataSet().addAll(Arrays.asList(consumers));
        return raw.call(RequestCode.HEART_BEAT, heartbeat.encode());
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void waitFor(Condition condition) throws Exception {
        for (int i = 0; i < 900; i++) {  // consumers share queues anew every 20 seconds
            if (condition.holds()) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("it did not happen within 45 s");
    }

    private Receiving() {
    }
}
