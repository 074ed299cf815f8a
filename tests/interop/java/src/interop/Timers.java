package interop;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * Messages to be delivered at a time their sender names, and taking them back; 5.x alone has both.
 *
 * The brokers are set to a precision of 100 ms and 3 days at most, and to let messages be taken back.
 */
public final class Timers {
    private static final String TIMER_TOPIC = "rmq_sys_wheel_timer";
    private static final long PRECISION_MILLIS = 100;
    private static final long DAY_MILLIS = 24 * 3600 * 1000L;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("timer-delay-ms", Timers::delayMillis);
        all.scenario("timer-delay-sec", Timers::delaySeconds);
        all.scenario("timer-deliver-ms", Timers::deliverMillis);
        all.scenario("timers-in-order", Timers::inOrder);
        all.scenario("timer-in-the-past", Timers::inThePast);
        all.scenario("timer-too-far", Timers::tooFar);
        all.scenario("timer-no-number", Timers::noNumber);
        all.scenario("timer-and-delay-level", Timers::timerAndDelayLevel);
        all.scenario("recall", Timers::recall);
        all.scenario("recall-twice", Timers::recallTwice);
        all.scenario("recall-one-of-two", Timers::recallOneOfTwo);
        all.scenario("recall-after-delivery", Timers::recallAfterDelivery);
        all.scenario("recall-bad-handles", Timers::recallBadHandles);
        all.scenario("recall-handle-only-of-timers", Timers::recallHandleOnlyOfTimers);
        all.run(args);
    }

    // --- named times -----------------------------------------------------------------------------------

    private static void delayMillis(World world, Observed seen) throws Exception {
        world.createTopic(4);
        Message message = rich(world);
        message.setDelayTimeMs(4_500);
        deliveredInTime(world, seen, message, System.currentTimeMillis() + 4_500);
    }

    private static void delaySeconds(World world, Observed seen) throws Exception {
        world.createTopic(4);
        Message message = rich(world);
        message.setDelayTimeSec(4);
        deliveredInTime(world, seen, message, System.currentTimeMillis() + 4_000);
    }

    private static void deliverMillis(World world, Observed seen) throws Exception {
        world.createTopic(4);
        Message message = rich(world);
        world.producer();  // started before the time is named
        long due = System.currentTimeMillis() + 4_700;
        message.setDeliverTimeMs(due);
        deliveredInTime(world, seen, message, due);
    }

    private static Message rich(World world) {
        Message message = new Message(world.topic(), "red", "k1 k2", "wait".getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("color", "blue");
        message.setFlag(7);
        return message;
    }

    private static void deliveredInTime(World world, Observed seen, Message message, long due) throws Exception {
        SendResult sent = world.producer().send(message, world.queue(2));
        seen.put("status", sent.getSendStatus());
        seen.put("queue", sent.getMessageQueue().getQueueId());
        seen.put("hasRecallHandle", sent.getRecallHandle() != null);
        seen.put("waiting", Later.waiting(world, TIMER_TOPIC, 0));
        MessageExt delivered = Later.await(world, world.topic(), 2, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        // The original rounds down to its precision, so it may be that much early.
        seen.put("notEarly", delivered.getStoreTimestamp() >= due - PRECISION_MILLIS);
        seen.put("sameId", delivered.getProperty("UNIQ_KEY").equals(sent.getMsgId()));
        seen.put("saysWhenItWasDue", delivered.getProperty("TIMER_OUT_MS") != null);
    }

    private static void inOrder(World world, Observed seen) throws Exception {
        world.createTopic(1);
        long now = System.currentTimeMillis();
        for (int seconds : new int[] {9, 5, 7, 3}) {  // further apart than any precision
            Message message = world.message("after " + seconds + " s");
            message.setDeliverTimeMs(now + seconds * 1_000L);
            world.producer().send(message, world.queue(0));
        }
        seen.put("delivered", Observed.messages(Later.await(world, world.topic(), 0, 4)));
    }

    private static void inThePast(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message message = world.message("yesterday");
        message.setDeliverTimeMs(System.currentTimeMillis() - DAY_MILLIS);
        seen.attempt("send", () -> world.producer().send(message, world.queue(0)));
        seen.put("delivered", Observed.messages(Later.await(world, world.topic(), 0, 1)));
    }

    private static void tooFar(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message millis = world.message("far");
        millis.setDelayTimeMs(4 * DAY_MILLIS);  // the brokers are set to 3 days
        seen.attempt("delayMs", () -> world.producer().send(millis, world.queue(0)));
        Message seconds = world.message("far");
        seconds.setDelayTimeSec(4 * DAY_MILLIS / 1000);
        seen.attempt("delaySec", () -> world.producer().send(seconds, world.queue(0)));
        Message time = world.message("far");
        time.setDeliverTimeMs(System.currentTimeMillis() + 4 * DAY_MILLIS);
        seen.attempt("deliverMs", () -> world.producer().send(time, world.queue(0)));
        Message allowed = world.message("far enough");
        allowed.setDelayTimeMs(3 * DAY_MILLIS - 60_000);
        seen.put("allowed", world.producer().send(allowed, world.queue(0)).getSendStatus());
        seen.put("stored", world.stored(world.topic(), 0).size());
    }

    private static void noNumber(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message message = world.message("when?");
        message.getProperties().put("TIMER_DELAY_MS", "soon");
        seen.attempt("send", () -> world.producer().send(message, world.queue(0)));
    }

    private static void timerAndDelayLevel(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message message = world.message("both");
        message.setDelayTimeMs(10_000);
        message.setDelayTimeLevel(1);
        long sentAt = System.currentTimeMillis();
        seen.put("status", world.producer().send(message, world.queue(0)).getSendStatus());
        MessageExt delivered = Later.await(world, world.topic(), 0, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        seen.put("byTheLevel", delivered.getStoreTimestamp() < sentAt + 8_000);
    }

    // --- taking back -------------------------------------------------------------------------------------

    private static void recall(World world, Observed seen) throws Exception {
        world.createTopic(1);
        SendResult sent = sendIn(world, "taken back", 4_000);
        seen.put("handle", told(sent.getRecallHandle()));
        String id = world.producer().recallMessage(world.topic(), sent.getRecallHandle());
        seen.put("sameId", id.equals(sent.getMsgId()));
        Thread.sleep(8_000);
        seen.put("delivered", world.stored(world.topic(), 0).size());
    }

    private static void recallTwice(World world, Observed seen) throws Exception {
        world.createTopic(1);
        SendResult sent = sendIn(world, "taken back", 4_000);
        for (String time : new String[] {"first", "second"}) {
            seen.attempt(time, () -> world.producer().recallMessage(world.topic(), sent.getRecallHandle())
                .equals(sent.getMsgId()));
        }
        Thread.sleep(8_000);
        seen.put("delivered", world.stored(world.topic(), 0).size());
    }

    private static void recallOneOfTwo(World world, Observed seen) throws Exception {
        world.createTopic(1);
        SendResult one = sendIn(world, "stays", 4_000);
        SendResult two = sendIn(world, "goes", 4_000);
        seen.attempt("recall", () -> world.producer().recallMessage(world.topic(), two.getRecallHandle())
            .equals(two.getMsgId()));
        List<MessageExt> delivered = Later.await(world, world.topic(), 0, 1);
        Thread.sleep(3_000);
        seen.put("delivered", Observed.messages(world.stored(world.topic(), 0)));
        seen.put("itIsTheOther", delivered.get(0).getProperty("UNIQ_KEY").equals(one.getMsgId()));
    }

    private static void recallAfterDelivery(World world, Observed seen) throws Exception {
        world.createTopic(1);
        SendResult sent = sendIn(world, "gone", 1_000);
        Later.await(world, world.topic(), 0, 1);
        Thread.sleep(1_500);  // the original may have delivered it a little early
        seen.attempt("recall", () -> world.producer().recallMessage(world.topic(), sent.getRecallHandle()));
    }

    private static void recallBadHandles(World world, Observed seen) throws Exception {
        world.createTopic(1);
        String id = sendIn(world, "stays", 1_000).getMsgId();
        long soon = System.currentTimeMillis() + 60_000;
        seen.attempt("garbage", () -> world.producer().recallMessage(world.topic(), "garbage"));
        recallRaw(world, seen, "rawGarbage", "garbage");
        recallRaw(world, seen, "notBase64", "%%%%");
        recallRaw(world, seen, "empty", "");
        recallRaw(world, seen, "absent", null);
        recallRaw(world, seen, "otherVersion", handle("v9", world.topic(), World.BROKER_NAME, soon, id));
        recallRaw(world, seen, "otherTopic", handle("v1", "another", World.BROKER_NAME, soon, id));
        recallRaw(world, seen, "otherBroker", handle("v1", world.topic(), "another", soon, id));
        recallRaw(world, seen, "noTime", encoded("v1 " + world.topic() + " " + World.BROKER_NAME + " soon " + id));
        recallRaw(world, seen, "past", handle("v1", world.topic(), World.BROKER_NAME, 1_600_000_000_000L, id));
        recallRaw(world, seen, "tooFar", handle("v1", world.topic(), World.BROKER_NAME, soon + 4 * DAY_MILLIS, id));
        recallRaw(world, seen, "unknownId", handle("v1", world.topic(), World.BROKER_NAME, soon, "0".repeat(32)));
        seen.reply("unknownTopic", world.call(RequestCode.RECALL_MESSAGE, null, "producerGroup", "g",
            "topic", "topic-nobody-made", "recallHandle", handle("v1", "topic-nobody-made", World.BROKER_NAME, soon, id)));
    }

    private static void recallHandleOnlyOfTimers(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.put("plain", world.producer().send(world.message("plain"), world.queue(0)).getRecallHandle() != null);
        Message delayed = world.message("level");
        delayed.setDelayTimeLevel(1);
        seen.put("level", world.producer().send(delayed, world.queue(0)).getRecallHandle() != null);
        seen.put("timer", sendIn(world, "timer", 1_500).getRecallHandle() != null);
    }

    private static SendResult sendIn(World world, String body, long millis) throws Exception {
        Message message = world.message(body);
        message.setDelayTimeMs(millis);
        return world.producer().send(message, world.queue(0));
    }

    private static void recallRaw(World world, Observed seen, String name, String handle) throws Exception {
        seen.reply(name, world.call(RequestCode.RECALL_MESSAGE, null, "producerGroup", "producers-" + world.name,
            "topic", world.topic(), "recallHandle", handle));
    }

    private static String handle(String version, String topic, String broker, long time, String id) {
        return encoded(version + " " + topic + " " + broker + " " + time + " " + id);
    }

    private static String encoded(String text) {
        return Base64.getUrlEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    /** A handle's words, which are masked where they differ from run to run. */
    private static String told(String handle) {
        return new String(Base64.getUrlDecoder().decode(handle), StandardCharsets.UTF_8);
    }

    private Timers() {
    }
}
