package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;

/**
 * Messages that come back later: delay levels, retries and dead letters, requests and their replies.
 *
 * The brokers are set to the levels 1s 2s 3s 4s 5s 6s, so that a retry (from level 3 on) is worth waiting for.
 */
public final class Later {
    private static final int LEVELS = 6;
    private static final String SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX";
    private static final long WAIT_MILLIS = 30_000;
    private static final long QUIET_MILLIS = 1_500;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("delay-level", Later::delayLevel);
        all.scenario("delay-levels-in-order", Later::delayLevelsInOrder);
        all.scenario("delay-level-keeps-order-of-sending", Later::delayLevelKeepsOrder);
        all.scenario("delay-level-beyond-the-last", Later::delayLevelBeyondTheLast);
        all.scenario("delay-level-not-positive", Later::delayLevelNotPositive);
        all.scenario("delay-level-to-each-queue", Later::delayLevelToEachQueue);
        all.scenario("send-back-until-dead", Later::sendBackUntilDead);
        all.scenario("send-back-at-level", Later::sendBackAtLevel);
        all.scenario("send-back-to-dead-letters", Later::sendBackToDeadLetters);
        all.scenario("send-back-over-several-queues", Later::sendBackOverSeveralQueues);
        all.scenario("send-back-without-retry-queues", Later::sendBackWithoutRetryQueues);
        all.scenario("send-back-of-nothing", Later::sendBackOfNothing);
        all.scenario("send-back-tries-of-the-client", Later::sendBackTriesOfTheClient);
        all.scenario("consumer-wants-it-later", Later::consumerWantsItLater);
        all.scenario("consumer-gives-up", Later::consumerGivesUp);
        all.scenario("consumer-chooses-the-level", Later::consumerChoosesTheLevel);
        all.scenario("orderly-consumer-suspends", Later::orderlyConsumerSuspends);
        all.scenario("orderly-consumer-gives-up", Later::orderlyConsumerGivesUp);
        all.scenario("request-and-reply", Later::requestAndReply);
        all.scenario("request-to-a-queue", Later::requestToAQueue);
        all.scenario("request-without-reply", Later::requestWithoutReply);
        all.scenario("reply-on-the-wire", Later::replyOnTheWire);
        all.scenario("reply-to-nobody", Later::replyToNobody);
        all.run(args);
    }

    // --- delay levels ----------------------------------------------------------------------------------

    private static void delayLevel(World world, Observed seen) throws Exception {
        world.createTopic(4);
        Message message = new Message(world.topic(), "red", "k1 k2", "wait".getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("color", "blue");
        message.setDelayTimeLevel(2);
        message.setFlag(7);
        long sentAt = System.currentTimeMillis();
        SendResult sent = world.producer().send(message, world.queue(2));
        seen.put("status", sent.getSendStatus());
        seen.put("queue", sent.getMessageQueue().getQueueId());
        seen.put("waiting", waiting(world, SCHEDULE_TOPIC, 1));
        MessageExt delivered = await(world, world.topic(), 2, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        seen.put("notEarly", delivered.getStoreTimestamp() >= sentAt + 2000);
        seen.put("sameId", delivered.getProperty("UNIQ_KEY").equals(sent.getMsgId()));
        seen.put("bornWhenSent", delivered.getBornTimestamp() < delivered.getStoreTimestamp() - 1000);
        Thread.sleep(QUIET_MILLIS);
        List<Integer> counts = new ArrayList<>();
        for (int queue = 0; queue < 4; queue++) {
            counts.add(world.stored(world.topic(), queue).size());
        }
        seen.put("messagesInQueues", counts);
    }

    private static void delayLevelsInOrder(World world, Observed seen) throws Exception {
        world.createTopic(1);
        for (int level : new int[] {3, 1, 2, 0}) {
            sendDelayed(world, "level " + level, level, 0);
        }
        seen.put("delivered", Observed.messages(await(world, world.topic(), 0, 4)));
    }

    private static void delayLevelKeepsOrder(World world, Observed seen) throws Exception {
        world.createTopic(1);
        for (int number = 0; number < 20; number++) {
            sendDelayed(world, "number " + number, 1, 0);
        }
        List<Object> bodies = new ArrayList<>();
        for (MessageExt delivered : await(world, world.topic(), 0, 20)) {
            bodies.add(new String(delivered.getBody(), StandardCharsets.UTF_8));
        }
        seen.put("delivered", bodies);
    }

    private static void delayLevelBeyondTheLast(World world, Observed seen) throws Exception {
        world.createTopic(1);
        long sentAt = System.currentTimeMillis();
        SendResult sent = sendDelayed(world, "far", 99, 0);
        seen.put("status", sent.getSendStatus());
        seen.put("waiting", waiting(world, SCHEDULE_TOPIC, LEVELS - 1));
        MessageExt delivered = await(world, world.topic(), 0, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        seen.put("notEarly", delivered.getStoreTimestamp() >= sentAt + 6000);
    }

    private static void delayLevelNotPositive(World world, Observed seen) throws Exception {
        world.createTopic(1);
        seen.attempt("zero", () -> sendDelayed(world, "zero", 0, 0));
        seen.attempt("negative", () -> sendDelayed(world, "negative", -1, 0));
        seen.put("stored", Observed.messages(await(world, world.topic(), 0, 2)));
    }

    private static void delayLevelToEachQueue(World world, Observed seen) throws Exception {
        world.createTopic(4);
        for (int queue = 3; queue >= 0; queue--) {
            sendDelayed(world, "to " + queue, 1, queue);
        }
        for (int queue = 0; queue < 4; queue++) {
            seen.put("queue" + queue, Observed.messages(await(world, world.topic(), queue, 1)));
        }
    }

    private static SendResult sendDelayed(World world, String body, int level, int queue) throws Exception {
        Message message = world.message(body);
        message.setDelayTimeLevel(level);
        return world.producer().send(message, world.queue(queue));
    }

    // --- retries and dead letters ------------------------------------------------------------------------

    private static void sendBackUntilDead(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 2, 1);
        Message first = new Message(world.topic(), "red", "k1", "again".getBytes(StandardCharsets.UTF_8));
        first.putUserProperty("color", "blue");
        world.producer().send(first, world.queue(0));
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        String originId = message.getMsgId();
        for (int time = 1; time <= 2; time++) {
            long now = System.currentTimeMillis();
            seen.reply("sendBack" + time, sendBack(world, message, 0, null));
            seen.put("waiting" + time, waiting(world, SCHEDULE_TOPIC, 1 + time));
            message = await(world, retryTopic(world), 0, time).get(time - 1);
            seen.put("retry" + time, Observed.message(message));
            seen.put("notEarly" + time, message.getStoreTimestamp() >= now + (2 + time) * 1000L);
            seen.put("origin" + time, originId.equals(message.getProperty("ORIGIN_MESSAGE_ID")));
        }
        seen.reply("sendBack3", sendBack(world, message, 0, null));
        MessageExt dead = await(world, deadLetterTopic(world), 0, 1).get(0);
        seen.put("dead", Observed.message(dead));
        seen.put("deadOrigin", originId.equals(dead.getProperty("ORIGIN_MESSAGE_ID")));
        seen.put("retryTopic", topicConfig(world, retryTopic(world)));
        seen.put("deadLetterTopic", topicConfig(world, deadLetterTopic(world)));
    }

    private static void sendBackAtLevel(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 1);
        world.fill(0, "one");
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        seen.reply("sendBack", sendBack(world, message, 1, null));
        seen.put("retry", Observed.message(await(world, retryTopic(world), 0, 1).get(0)));
    }

    private static void sendBackToDeadLetters(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 1);
        world.fill(0, "one");
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        seen.reply("sendBack", sendBack(world, message, -1, null));
        seen.put("dead", Observed.message(await(world, deadLetterTopic(world), 0, 1).get(0)));
        seen.put("retries", world.stored(retryTopic(world), 0).size());
    }

    private static void sendBackOverSeveralQueues(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 3);
        world.fill(0, "one");
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        for (int time = 0; time < 30; time++) {
            sendBack(world, message, 1, null);
        }
        seen.put("retryTopic", topicConfig(world, retryTopic(world)));
        int used = 0;
        int all = 0;
        for (long end = System.currentTimeMillis() + WAIT_MILLIS; all < 30 && System.currentTimeMillis() < end;) {
            Thread.sleep(200);
            used = 0;
            all = 0;
            for (int queue = 0; queue < 3; queue++) {
                int count = world.stored(retryTopic(world), queue).size();
                used += count > 0 ? 1 : 0;
                all += count;
            }
        }
        seen.put("usedQueues", used);
        seen.put("messages", all);
    }

    private static void sendBackWithoutRetryQueues(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 0);
        world.fill(0, "one");
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        seen.reply("sendBack", sendBack(world, message, 0, null));
        seen.reply("pullRetry", world.call(RequestCode.PULL_MESSAGE, null, world.pullFields(retryTopic(world), 0, 0)));
    }

    private static void sendBackOfNothing(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 1);
        seen.reply("beyondTheEnd", world.call(RequestCode.CONSUMER_SEND_MSG_BACK, null, "offset", 1L << 40,
            "group", world.group(), "delayLevel", 0, "originMsgId", "x", "originTopic", world.topic(), "unitMode", false));
        seen.reply("withoutGroup", world.call(RequestCode.CONSUMER_SEND_MSG_BACK, null, "offset", 0, "delayLevel", 0));
    }

    private static void sendBackTriesOfTheClient(World world, Observed seen) throws Exception {
        world.createTopic(1);
        group(world, 16, 1);
        world.fill(0, "one");
        MessageExt message = await(world, world.topic(), 0, 1).get(0);
        seen.reply("sendBack", sendBack(world, message, 0, 0));
        seen.put("dead", Observed.message(await(world, deadLetterTopic(world), 0, 1).get(0)));
    }

    // --- consumers of the public API -----------------------------------------------------------------------

    private static void consumerWantsItLater(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "one", "two");
        Map<String, Observed> heard = new ConcurrentSkipListMap<>();
        CountDownLatch done = new CountDownLatch(4);
        consume(world, -1, (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            heard.put(body + " " + message.getReconsumeTimes(), Observed.message(message));
            done.countDown();
            boolean isTwo = "two".equals(body);
            return isTwo && message.getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
        Thread.sleep(QUIET_MILLIS);
        seen.put("heard", heard);
    }

    private static void consumerGivesUp(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "one");
        List<Object> heard = new CopyOnWriteArrayList<>();
        consume(world, 2, (messages, context) -> {
            heard.add(Observed.message(messages.get(0)));
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        seen.put("dead", Observed.message(await(world, deadLetterTopic(world), 0, 1).get(0)));
        seen.put("heard", heard);
    }

    private static void consumerChoosesTheLevel(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "one");
        List<Object> heard = new CopyOnWriteArrayList<>();
        CountDownLatch done = new CountDownLatch(2);
        consume(world, -1, (messages, context) -> {
            heard.add(Observed.message(messages.get(0)));
            done.countDown();
            context.setDelayLevelWhenNextConsume(messages.get(0).getReconsumeTimes() == 0 ? 1 : -1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
        seen.put("dead", Observed.message(await(world, deadLetterTopic(world), 0, 1).get(0)));
        seen.put("heard", heard);
    }

    private static void consume(World world, int triesMax, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setMaxReconsumeTimes(triesMax);
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener(listener);
        world.start(consumer, "consumer-" + world.name);
    }

    private static void orderlyConsumerSuspends(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "one", "two", "three");
        List<Object> heard = new CopyOnWriteArrayList<>();
        CountDownLatch done = new CountDownLatch(5);
        consumeOrderly(world, -1, (messages, context) -> {
            MessageExt message = messages.get(0);
            heard.add(Observed.message(message));
            done.countDown();
            boolean isTwo = "two".equals(new String(message.getBody(), StandardCharsets.UTF_8));
            return isTwo && message.getReconsumeTimes() < 2
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
        Thread.sleep(QUIET_MILLIS);
        seen.put("heard", heard);
    }

    private static void orderlyConsumerGivesUp(World world, Observed seen) throws Exception {
        world.createTopic(1);
        world.fill(0, "one", "two", "three");
        List<Object> heard = new CopyOnWriteArrayList<>();
        CountDownLatch done = new CountDownLatch(5);
        consumeOrderly(world, 2, (messages, context) -> {
            MessageExt message = messages.get(0);
            heard.add(Observed.message(message));
            done.countDown();
            return "two".equals(new String(message.getBody(), StandardCharsets.UTF_8))
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
        seen.put("dead", Observed.message(await(world, deadLetterTopic(world), 0, 1).get(0)));
        Thread.sleep(QUIET_MILLIS);
        seen.put("heard", heard);
    }

    private static void consumeOrderly(World world, int triesMax, MessageListenerOrderly listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(world.group());
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setMaxReconsumeTimes(triesMax);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(world.topic(), "*");
        consumer.registerMessageListener(listener);
        world.start(consumer, "consumer-" + world.name);
    }

    // --- requests and replies ------------------------------------------------------------------------------

    // The 5.3.3 client's blocking form returns as soon as its request is sent, with or without a reply; the other
    // one calls back at that moment too, with null.

    private static void requestAndReply(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message request = new Message(world.topic(), "red", "k1", "how much?".getBytes(StandardCharsets.UTF_8));
        request.putUserProperty("color", "blue");
        exchange(world, seen, callback -> world.producer().request(request, callback, WAIT_MILLIS));
    }

    private static void requestToAQueue(World world, Observed seen) throws Exception {
        world.createTopic(4);
        exchange(world, seen, callback ->
            world.producer().request(world.message("how much?"), world.queue(3), callback, WAIT_MILLIS));
    }

    private interface Requesting {
        void request(RequestCallback callback) throws Exception;
    }

    /** A request, a consumer that answers it with a producer of its own, and what each of them had of it. */
    private static void exchange(World world, Observed seen, Requesting requesting) throws Exception {
        CountDownLatch done = new CountDownLatch(2);
        DefaultMQProducer replier = new DefaultMQProducer("repliers-" + world.name);
        world.start(replier, "replier-" + world.name);
        consume(world, -1, (messages, context) -> {
            MessageExt request = messages.get(0);
            seen.put("request", Observed.message(request));
            try {
                String body = "reply to " + new String(request.getBody(), StandardCharsets.UTF_8);
                Message reply = MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8));
                SendResult sent = replier.send(reply, 10_000);
                seen.put("replied", sent.getSendStatus());
            } catch (Exception e) {
                seen.put("replied", Observed.failure(e));
            }
            done.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        requesting.request(new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    seen.put("reply", Observed.message((MessageExt) reply));
                    done.countDown();
                }
            }

            @Override
            public void onException(Throwable e) {
                seen.put("reply", Observed.failure(e));
                done.countDown();
            }
        });
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
    }

    private static void requestWithoutReply(World world, Observed seen) throws Exception {
        world.createTopic(1);
        CountDownLatch done = new CountDownLatch(1);
        world.producer().request(world.message("anybody?"), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    seen.put("reply", "came from nowhere");
                    done.countDown();
                }
            }

            @Override
            public void onException(Throwable e) {
                seen.put("reply", Observed.failure(e));
                done.countDown();
            }
        }, 2_000);
        done.await(WAIT_MILLIS, TimeUnit.MILLISECONDS);
        seen.put("request", Observed.messages(await(world, world.topic(), 0, 1)));
    }

    /** The push as it is on the wire, and what the replier hears when the asker does not say that it has it. */
    private static void replyOnTheWire(World world, Observed seen) throws Exception {
        world.createTopic(1);
        World.Raw asker = world.newRaw();
        String heartbeat = "{\"clientID\":\"asker@" + world.name + "\",\"consumerDataSet\":[],"
            + "\"producerDataSet\":[{\"groupName\":\"producers-" + world.name + "\"}]}";
        seen.put("heartbeat", asker.call(RequestCode.HEART_BEAT, heartbeat.getBytes(StandardCharsets.UTF_8)).getCode());
        String properties = "MSG_TYPE\u0001reply\u0002CORRELATION_ID\u000117\u0002REPLY_TO_CLIENT\u0001asker@"
            + world.name + "\u0002TTL\u00013000\u0002";
        RemotingCommand reply = world.call(RequestCode.SEND_REPLY_MESSAGE, "well".getBytes(StandardCharsets.UTF_8),
            "producerGroup", "repliers-" + world.name, "topic", world.topic(), "defaultTopic", "TBW102",
            "defaultTopicQueueNums", 4, "queueId", 0, "sysFlag", 0, "bornTimestamp", System.currentTimeMillis(),
            "flag", 7, "properties", properties, "reconsumeTimes", 0, "unitMode", false, "batch", false);
        seen.reply("reply", reply);
        RemotingCommand push = asker.asked.poll(5, TimeUnit.SECONDS);
        seen.put("pushed", push.getCode());
        seen.put("pushedBody", new String(push.getBody(), StandardCharsets.UTF_8));
        TreeMap<String, Object> fields = new TreeMap<>(push.getExtFields());
        String pushedProperties = String.valueOf(fields.remove("properties"));
        seen.put("pushedFields", fields);
        seen.put("pushedProperties", new TreeMap<>(MessageDecoder.string2messageProperties(pushedProperties)));
        seen.put("stored", Observed.messages(await(world, world.topic(), 0, 1)));
    }

    private static void replyToNobody(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Message reply = world.message("to a client that is gone");
        reply.getProperties().put("MSG_TYPE", "reply");
        reply.getProperties().put("CORRELATION_ID", "17");
        reply.getProperties().put("REPLY_TO_CLIENT", "10.0.0.1@nobody");
        seen.attempt("reply", () -> world.producer().send(reply, world.queue(0)));
        reply.getProperties().remove("REPLY_TO_CLIENT");
        seen.attempt("replyWithoutAddress", () -> world.producer().send(reply, world.queue(0)));
        seen.put("stored", Observed.messages(await(world, world.topic(), 0, 2)));
    }

    // --- what several of them need ---------------------------------------------------------------------------

    static String retryTopic(World world) {
        return "%RETRY%" + world.group();
    }

    static String deadLetterTopic(World world) {
        return "%DLQ%" + world.group();
    }

    /** The messages of a queue, once there are as many as this. */
    static List<MessageExt> await(World world, String topic, int queue, int count) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MILLIS;
        while (true) {
            List<MessageExt> found = world.stored(topic, queue);
            if (found.size() >= count) {
                return found;
            }
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(found.size() + " of " + count + " messages in " + topic + "/" + queue);
            }
            Thread.sleep(100);
        }
    }

    /** What waits in a queue of the system for this scenario's topics: the newest, without its place. */
    static Observed waiting(World world, String systemTopic, int queue) throws Exception {
        for (long end = System.currentTimeMillis() + WAIT_MILLIS; System.currentTimeMillis() < end; Thread.sleep(20)) {
            MessageExt newest = null;
            for (MessageExt message : all(world, systemTopic, queue)) {
                if (message.getProperty("REAL_TOPIC").endsWith(world.name)) {
                    newest = message;
                }
            }
            if (newest != null) {
                newest.setQueueOffset(0);  // others wait there too
                return Observed.message(newest);
            }
        }
        throw new IllegalStateException("nothing of it in " + systemTopic + "/" + queue);
    }

    private static List<MessageExt> all(World world, String topic, int queue) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        while (true) {
            List<MessageExt> page = World.decode(world.call(RequestCode.PULL_MESSAGE, null, world.pullFields(
                topic, queue, found.size(), "consumerGroup", "readers-" + world.name)));
            if (page.isEmpty()) {
                return found;
            }
            found.addAll(page);
        }
    }

    private static void group(World world, int triesMax, int retryQueues) throws Exception {
        String settings = "{\"groupName\":\"" + world.group() + "\",\"consumeEnable\":true,\"retryMaxTimes\":" + triesMax
            + ",\"retryQueueNums\":" + retryQueues + "}";
        RemotingCommand reply = world.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, settings.getBytes(StandardCharsets.UTF_8));
        if (reply.getCode() != 0) {
            throw new IllegalStateException("group: " + reply);
        }
    }

    private static RemotingCommand sendBack(World world, MessageExt message, int level, Integer triesMax)
        throws Exception {
        return world.call(RequestCode.CONSUMER_SEND_MSG_BACK, null, "offset", message.getCommitLogOffset(),
            "group", world.group(), "delayLevel", level, "originMsgId", message.getMsgId(),
            "originTopic", message.getTopic(), "unitMode", false, "maxReconsumeTimes", triesMax);
    }

    private static Observed topicConfig(World world, String topic) throws Exception {
        RemotingCommand reply = world.call(RequestCode.GET_ALL_TOPIC_CONFIG, null);
        TopicConfig config = TopicConfigSerializeWrapper
            .decode(reply.getBody(), TopicConfigSerializeWrapper.class).getTopicConfigTable().get(topic);
        Observed told = new Observed();
        told.put("readQueues", config.getReadQueueNums());
        told.put("writeQueues", config.getWriteQueueNums());
        told.put("perm", config.getPerm());
        return told;
    }

    private Later() {
    }
}
