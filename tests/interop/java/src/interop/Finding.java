package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.ConsumeQueueData;
import org.apache.rocketmq.remoting.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Finding messages that are there: by place, by key, by time.
 *
 * A scenario sends its messages when they are not there yet. So it may be run again after the broker was
 * restarted, and must then find the same.
 */
public final class Finding {
    private static final long EVER = Long.MAX_VALUE;
    private static final Map<World, DefaultMQAdminExt> ADMINS = new HashMap<>();

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("find-by-offset-id", Finding::byOffsetId);
        all.scenario("find-at-no-message", Finding::atNoMessage);
        all.scenario("find-by-unique-key", Finding::byUniqueKey);
        all.scenario("find-by-key", Finding::byKey);
        all.scenario("find-by-key-at-most", Finding::byKeyAtMost);
        all.scenario("find-by-key-in-a-time", 90, Finding::byKeyInATime);
        all.scenario("find-by-one-of-several-keys", Finding::byOneOfSeveralKeys);
        all.scenario("find-by-key-in-a-batch", Finding::byKeyInABatch);
        all.scenario("find-by-unknown-key", Finding::byUnknownKey);
        all.scenario("find-by-key-of-another-topic", Finding::byKeyOfAnotherTopic);
        all.scenario("find-by-key-after-a-delay", Finding::byKeyAfterADelay);
        all.scenario("search-by-time", Finding::byTime);
        all.scenario("search-by-time-with-boundary", Finding::byTimeWithBoundary);
        all.scenario("search-by-time-where-nothing-is", Finding::byTimeWhereNothingIs);
        all.scenario("earliest-store-time", Finding::earliestStoreTime);
        all.scenario("consume-queue-entries", Finding::consumeQueueEntries);
        all.scenario("consume-queue-entries-with-filter", Finding::consumeQueueEntriesWithFilter);
        all.scenario("consume-queue-entries-where-nothing-is", Finding::consumeQueueEntriesWhereNothingIs);
        all.run(args);
    }

    // --- by place ----------------------------------------------------------------------------------------

    private static void byOffsetId(World world, Observed seen) throws Exception {
        List<MessageExt> there = there(world, 3, () -> {
            Message rich = new Message(world.topic(), "red", "k1 k2", bytes("one"));
            rich.putUserProperty("color", "blue");
            rich.setFlag(7);
            world.producer().send(rich, world.queue(0));
            world.fill(0, "two", "three");
        });
        List<Object> found = new ArrayList<>();
        for (MessageExt message : there) {
            found.add(Observed.message(admin(world).viewMessage(world.topic(), message.getMsgId())));
        }
        seen.put("found", found);
    }

    private static void atNoMessage(World world, Observed seen) throws Exception {
        MessageExt there = there(world, 1, () -> world.fill(0, "one")).get(0);
        long place = there.getCommitLogOffset();
        seen.reply("beyondTheEnd", world.call(RequestCode.VIEW_MESSAGE_BY_ID, null, "offset", 1L << 40));
        seen.put("inTheMiddle", world.call(RequestCode.VIEW_MESSAGE_BY_ID, null, "offset", place + 1).getCode());
        seen.reply("negative", world.call(RequestCode.VIEW_MESSAGE_BY_ID, null, "offset", -1));
        seen.attempt("badId", () -> admin(world).viewMessage(world.topic(), "no id").getMsgId());
    }

    // --- by key ------------------------------------------------------------------------------------------

    private static void byUniqueKey(World world, Observed seen) throws Exception {
        List<MessageExt> there = there(world, 3, () -> world.fill(0, "one", "two", "three"));
        List<Object> found = new ArrayList<>();
        for (MessageExt message : there) {
            String id = message.getProperty("UNIQ_KEY");
            found.add(Observed.message(admin(world).viewMessage(world.topic(), id)));
            seen.put("query", queried(world, id, 32, 0, EVER, true));
        }
        seen.put("found", found);
    }

    private static void byKey(World world, Observed seen) throws Exception {
        fiveOfAKey(world);
        seen.put("shared", found(world, "shared", 32, 0, EVER));
        seen.put("own", found(world, "own-3", 32, 0, EVER));
        seen.put("raw", queried(world, "shared", 32, 0, EVER, false));
    }

    private static void byKeyAtMost(World world, Observed seen) throws Exception {
        fiveOfAKey(world);
        for (int most : new int[] {1, 2, 5, 6}) {
            seen.put("most" + most, queried(world, "shared", most, 0, EVER, false));
        }
        seen.put("most0", queried(world, "shared", 0, 0, EVER, false));
    }

    private static void fiveOfAKey(World world) throws Exception {
        there(world, 5, () -> {
            for (int number = 0; number < 5; number++) {
                String keys = "shared own-" + number;
                world.producer().send(new Message(world.topic(), "t", keys, bytes("n" + number)), world.queue(0));
            }
        });
    }

    /** Index entries know their second only, so what is to be told apart lies three seconds apart. */
    private static void byKeyInATime(World world, Observed seen) throws Exception {
        List<MessageExt> there = there(world, 3, () -> {
            for (int number = 0; number < 3; number++) {
                Thread.sleep(number == 0 ? 0 : 3_000);
                world.producer().send(new Message(world.topic(), "t", "timed", bytes("n" + number)), world.queue(0));
            }
        });
        long first = there.get(0).getStoreTimestamp();
        long middle = there.get(1).getStoreTimestamp();
        long last = there.get(2).getStoreTimestamp();
        seen.put("all", queried(world, "timed", 32, first - 1_500, last + 1_500, false));
        seen.put("middle", queried(world, "timed", 32, middle - 1_500, middle + 1_500, false));
        seen.put("fromTheMiddle", queried(world, "timed", 32, middle - 1_500, EVER, false));
        seen.put("toTheMiddle", queried(world, "timed", 32, 0, middle + 1_500, false));
        seen.put("before", queried(world, "timed", 32, 0, first - 2_500, false));
        seen.put("after", queried(world, "timed", 32, last + 2_500, EVER, false));
        seen.put("backwards", queried(world, "timed", 32, last + 2_500, first - 2_500, false));
    }

    private static void byOneOfSeveralKeys(World world, Observed seen) throws Exception {
        there(world, 1, () ->
            world.producer().send(new Message(world.topic(), "t", "k1 k2 k3", bytes("one")), world.queue(0)));
        for (String key : new String[] {"k1", "k2", "k3"}) {
            seen.put(key, found(world, key, 32, 0, EVER));
        }
        seen.put("all", queried(world, "k1 k2 k3", 32, 0, EVER, false));
        seen.put("part", queried(world, "k", 32, 0, EVER, false));
        seen.put("empty", queried(world, "", 32, 0, EVER, false));
    }

    private static void byKeyInABatch(World world, Observed seen) throws Exception {
        there(world, 3, () -> world.producer().send(Arrays.asList(
            new Message(world.topic(), "t", "b0", bytes("n0")), new Message(world.topic(), "t", "b1", bytes("n1")),
            new Message(world.topic(), "t", "b2", bytes("n2"))), world.queue(0)));
        for (String key : new String[] {"b0", "b1", "b2"}) {
            seen.put(key, found(world, key, 32, 0, EVER));
        }
    }

    private static void byUnknownKey(World world, Observed seen) throws Exception {
        there(world, 1, () -> world.fill(0, "one"));
        seen.attempt("api", () -> found(world, "nobody", 32, 0, EVER));
        seen.put("raw", queried(world, "nobody", 32, 0, EVER, false));
        seen.put("unique", queried(world, "0".repeat(32), 32, 0, EVER, true));
    }

    private static void byKeyOfAnotherTopic(World world, Observed seen) throws Exception {
        there(world, 1, () ->
            world.producer().send(new Message(world.topic(), "t", "mine", bytes("one")), world.queue(0)));
        seen.put("here", queried(world, "mine", 32, 0, EVER, false));
        RemotingCommand reply = world.call(RequestCode.QUERY_MESSAGE, null, "topic", "topic-nobody-made",
            "key", "mine", "maxNum", 32, "beginTimestamp", 0, "endTimestamp", EVER);
        seen.put("elsewhere", reply.getCode());
    }

    private static void byKeyAfterADelay(World world, Observed seen) throws Exception {
        there(world, 1, () -> {
            Message message = new Message(world.topic(), "t", "delayed", bytes("one"));
            message.setDelayTimeLevel(1);
            world.producer().send(message, world.queue(0));
        });
        seen.put("found", found(world, "delayed", 32, 0, EVER));
    }

    // --- by time -----------------------------------------------------------------------------------------

    /** Two messages, three of one batch (and so of one moment), and one more, some time apart. */
    private static List<MessageExt> spread(World world) throws Exception {
        return there(world, 6, () -> {
            world.fill(0, "n0");
            Thread.sleep(60);
            world.fill(0, "n1");
            Thread.sleep(60);
            world.producer().send(
                Arrays.asList(world.message("n2"), world.message("n3"), world.message("n4")), world.queue(0));
            Thread.sleep(60);
            world.fill(0, "n5");
        });
    }

    private static void byTime(World world, Observed seen) throws Exception {
        List<MessageExt> there = spread(world);
        DefaultMQAdminExt admin = admin(world);
        MessageQueue queue = world.queue(0);
        for (int number = 0; number < there.size(); number++) {
            long time = there.get(number).getStoreTimestamp();
            seen.put("at" + number, admin.searchOffset(queue, time));
            seen.put("before" + number, admin.searchOffset(queue, time - 1));
            seen.put("after" + number, admin.searchOffset(queue, time + 1));
        }
        seen.put("longAgo", admin.searchOffset(queue, 0));
        seen.put("longAfter", admin.searchOffset(queue, there.get(5).getStoreTimestamp() + 1_000_000));
        seen.put("sameMoment", there.get(2).getStoreTimestamp() == there.get(4).getStoreTimestamp());
    }

    private static void byTimeWithBoundary(World world, Observed seen) throws Exception {
        List<MessageExt> there = spread(world);
        DefaultMQAdminExt admin = admin(world);
        MessageQueue queue = world.queue(0);
        for (int number = 0; number < there.size(); number++) {
            for (int shift = -1; shift <= 1; shift++) {
                long time = there.get(number).getStoreTimestamp() + shift;
                seen.put("lower" + number + "at" + shift, admin.searchLowerBoundaryOffset(queue, time));
                seen.put("upper" + number + "at" + shift, admin.searchUpperBoundaryOffset(queue, time));
            }
        }
        seen.put("lowerLongAgo", admin.searchLowerBoundaryOffset(queue, 0));
        seen.put("upperLongAgo", admin.searchUpperBoundaryOffset(queue, 0));
        long later = there.get(5).getStoreTimestamp() + 1_000_000;
        seen.put("lowerLongAfter", admin.searchLowerBoundaryOffset(queue, later));
        seen.put("upperLongAfter", admin.searchUpperBoundaryOffset(queue, later));
    }

    private static void byTimeWhereNothingIs(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.put("empty", admin(world).searchOffset(world.queue(0), System.currentTimeMillis()));
        for (Object[] place : new Object[][] {{"noQueue", world.topic(), 99}, {"noTopic", "topic-nobody-made", 0}}) {
            seen.reply(place[0] + "", world.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, null,
                "topic", place[1], "queueId", place[2], "timestamp", 0));
        }
    }

    private static void earliestStoreTime(World world, Observed seen) throws Exception {
        MessageExt first = there(world, 2, () -> {
            world.fill(0, "one");
            Thread.sleep(30);
            world.fill(0, "two");
        }).get(0);
        seen.put("isTheFirst", admin(world).earliestMsgStoreTime(world.queue(0)) == first.getStoreTimestamp());
        RemotingCommand reply = world.call(
            RequestCode.GET_EARLIEST_MSG_STORETIME, null, "topic", "topic-nobody-made", "queueId", 0);
        seen.reply("noTopic", reply);
        world.createTopic(world.topic() + "-empty", 1, 1, World.READ_WRITE);
        seen.reply("empty", world.call(
            RequestCode.GET_EARLIEST_MSG_STORETIME, null, "topic", world.topic() + "-empty", "queueId", 0));
    }

    // --- by entry of the consume queue -----------------------------------------------------------------------

    private static void consumeQueueEntries(World world, Observed seen) throws Exception {
        List<MessageExt> there = tagged(world);
        seen.put("all", entries(world, there, 0, 10, ""));
        seen.put("two", entries(world, there, 1, 2, ""));
        seen.put("beyond", world.call(RequestCode.QUERY_CONSUME_QUEUE, null, "topic", world.topic(), "queueId", 0,
            "index", 4, "count", 2, "consumerGroup", "").getCode());
    }

    private static void consumeQueueEntriesWithFilter(World world, Observed seen) throws Exception {
        List<MessageExt> there = tagged(world);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.subscribe(world.topic(), "red");
        consumer.registerMessageListener((MessageListenerConcurrently)
            (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        world.start(consumer, "consumer-" + world.name);
        Thread.sleep(1_000);  // until its heartbeat is there
        seen.put("entries", entries(world, there, 0, 10, world.group()));
        seen.attempt("noGroup", () -> entries(world, there, 0, 10, "group-nobody-has"));
    }

    private static void consumeQueueEntriesWhereNothingIs(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.reply("empty", world.call(RequestCode.QUERY_CONSUME_QUEUE, null, "topic", world.topic(), "queueId", 0,
            "index", 0, "count", 5, "consumerGroup", ""));
        seen.reply("noTopic", world.call(RequestCode.QUERY_CONSUME_QUEUE, null, "topic", "topic-nobody-made", "queueId", 0,
            "index", 0, "count", 5, "consumerGroup", ""));
    }

    private static List<MessageExt> tagged(World world) throws Exception {
        return there(world, 4, () -> {
            for (String tag : new String[] {"red", "green", "", "red"}) {
                world.producer().send(new Message(world.topic(), tag, bytes("a " + tag + " one")), world.queue(0));
            }
        });
    }

    /** Entries, with the message they point at instead of where that is. */
    private static Observed entries(World world, List<MessageExt> there, long index, int count, String group)
        throws Exception {
        QueryConsumeQueueResponseBody body =
            admin(world).queryConsumeQueue(world.broker, world.topic(), 0, index, count, group);
        List<Object> entries = new ArrayList<>();
        for (ConsumeQueueData data : body.getQueueData() == null ? new ArrayList<ConsumeQueueData>() : body.getQueueData()) {
            Observed entry = new Observed();
            entry.put("points", "at nothing");
            for (MessageExt message : there) {
                if (message.getCommitLogOffset() == data.getPhysicOffset() && message.getStoreSize() == data.getPhysicSize()) {
                    entry.put("points", new String(message.getBody(), StandardCharsets.UTF_8));
                }
            }
            entry.put("tagsCode", data.getTagsCode());
            entry.put("eval", data.isEval());
            entry.put("msg", data.getMsg());
            entry.put("extend", data.getExtendDataJson());
            entry.put("bitMap", data.getBitMap());
            entries.add(entry);
        }
        Observed told = new Observed();
        told.put("entries", entries);
        told.put("min", body.getMinQueueIndex());
        told.put("max", body.getMaxQueueIndex());
        told.put("subscription", body.getSubscriptionData() == null ? null : body.getSubscriptionData().getSubString());
        told.put("filter", body.getFilterData());
        return told;
    }

    // --- what several of them need ---------------------------------------------------------------------------

    private interface Sending {
        void run() throws Exception;
    }

    /** The messages of queue 0 once they are all there; sent first, when none is. */
    private static List<MessageExt> there(World world, int count, Sending sending) throws Exception {
        world.createTopic(1);
        if (world.stored(world.topic(), 0).isEmpty()) {
            sending.run();
        }
        List<MessageExt> there = Later.await(world, world.topic(), 0, count);
        awaitIndex(world, there.get(there.size() - 1));
        return there;
    }

    /** The index is written after the consume queue: wait until it has the newest message. */
    private static void awaitIndex(World world, MessageExt newest) throws Exception {
        for (int i = 0; i < 100; i++) {
            if (world.call(RequestCode.QUERY_MESSAGE, null, "topic", world.topic(), "key", newest.getProperty("UNIQ_KEY"),
                "maxNum", 1, "beginTimestamp", 0, "endTimestamp", EVER).getCode() == 0) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("the newest message is not in the index");
    }

    private static List<Object> found(World world, String key, int most, long from, long to) throws Exception {
        QueryResult result = admin(world).queryMessage(world.topic(), key, most, from, to);
        return Observed.messages(result.getMessageList());
    }

    /** What the broker itself answers, in its order. */
    private static Observed queried(World world, String key, int most, long from, long to, boolean unique)
        throws Exception {
        RemotingCommand reply = world.call(RequestCode.QUERY_MESSAGE, null, "topic", world.topic(), "key", key,
            "maxNum", most, "beginTimestamp", from, "endTimestamp", to, "_UNIQUE_KEY_QUERY", unique ? "true" : null);
        List<Object> bodies = new ArrayList<>();
        for (MessageExt message : World.decode(reply)) {
            bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
        }
        Observed told = new Observed();
        told.put("code", reply.getCode());
        told.put("remark", reply.getRemark());
        told.put("bodies", bodies);
        told.put("fields", reply.getExtFields() == null ? null : new ArrayList<>(new TreeSet<>(
            reply.getExtFields().keySet())));
        return told;
    }

    private static synchronized DefaultMQAdminExt admin(World world) throws Exception {
        DefaultMQAdminExt admin = ADMINS.get(world);
        if (admin == null) {
            admin = new DefaultMQAdminExt(World.TIMEOUT_MILLIS);
            admin.setNamesrvAddr(world.nameServer);
            admin.setInstanceName("admin-" + world.name);
            admin.start();
            ADMINS.put(world, admin);
            world.onClose(admin::shutdown);
        }
        return admin;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private Finding() {
    }
}
