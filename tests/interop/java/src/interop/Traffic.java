package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and receives with the official client and prints what happened, one JSON object a line.
 *
 * <pre>
 *   send    NAMESERVER GROUP TOPIC sync|async|oneway|batch COUNT PREFIX [BODY_BYTES]
 *   consume NAMESERVER GROUP TOPIC EXPRESSION COUNT SECONDS
 * </pre>
 *
 * Message n has the body PREFIX-n (padded with dots up to BODY_BYTES), the key PREFIX-key-n, the tag
 * even or odd and the user property number=n, so that the reader can check each of them. "consume" ends when
 * COUNT messages came and a quiet moment after them brought no more, or when SECONDS are over.
 */
public final class Traffic {
    private static final long QUIET_MILLIS = 1500;

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);  // client threads are not all daemons: only exit ends them, here and after an error
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        switch (args[0]) {
            case "send":
                send(args);
                break;
            case "consume":
                consume(args);
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + args[0]);
        }
    }

    private static void send(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[2], Signed.hook());
        producer.setNamesrvAddr(args[1]);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        String topic = args[3];
        int count = Integer.parseInt(args[5]);
        int bodyBytes = args.length > 7 ? Integer.parseInt(args[7]) : 0;
        List<Message> messages = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            messages.add(message(topic, args[6], n, bodyBytes));
        }
        switch (args[4]) {
            case "sync":
                for (int n = 0; n < count; n++) {
                    printSent(n, producer.send(messages.get(n)));
                }
                break;
            case "async":
                sendAsync(producer, messages);
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                Thread.sleep(500);  // nothing answers a one-way send: give the bytes time to leave
                break;
            case "batch":
                printSent(0, producer.send(messages));
                break;
            default:
                throw new IllegalArgumentException("unknown way to send " + args[4]);
        }
        producer.shutdown();
        print("done", "count", count);
    }

    private static void sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch answered = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            final int n = i;
            producer.send(messages.get(n), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    printSent(n, result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    print("failed", "number", n, "error", String.valueOf(e));
                    answered.countDown();
                }
            });
        }
        answered.await(30, TimeUnit.SECONDS);
    }

    private static Message message(String topic, String prefix, int n, int bodyBytes) {
        StringBuilder body = new StringBuilder(prefix + "-" + n);
        while (body.length() < bodyBytes) {
            body.append('.');
        }
        String tag = n % 2 == 0 ? "even" : "odd";
        byte[] bytes = body.toString().getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, tag, prefix + "-key-" + n, bytes);
        message.putUserProperty("number", String.valueOf(n));
        return message;
    }

    private static void consume(String[] args) throws Exception {
        int count = Integer.parseInt(args[5]);
        long deadline = System.currentTimeMillis() + 1000L * Integer.parseInt(args[6]);
        AtomicInteger received = new AtomicInteger();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(args[2], Signed.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(args[1]);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(args[3], args[4]);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                printReceived(message);
                received.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        print("started", "group", args[2]);
        while (received.get() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        Thread.sleep(QUIET_MILLIS);  // a message delivered twice would show up now
        consumer.shutdown();
        print("done", "count", received.get());
    }

    private static void printSent(int n, SendResult result) {
        print("sent", "number", n, "status", result.getSendStatus().name(), "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(), "queueId", result.getMessageQueue().getQueueId(),
            "brokerName", result.getMessageQueue().getBrokerName(), "queueOffset", result.getQueueOffset());
    }

    private static void printReceived(MessageExt message) {
        print("received", "body", new String(message.getBody(), StandardCharsets.UTF_8), "topic", message.getTopic(),
            "keys", message.getKeys(), "tags", message.getTags(), "msgId", message.getMsgId(),
            "queueId", message.getQueueId(), "queueOffset", message.getQueueOffset(),
            "storeHost", String.valueOf(message.getStoreHost()), "reconsumeTimes", message.getReconsumeTimes(),
            "properties", message.getProperties());
    }

    /** Prints {"event": event, name: value, ...}; one call is one line even when threads print together. */
    private static void print(String event, Object... namesAndValues) {
        StringBuilder line = new StringBuilder("{\"event\":" + json(event));
        for (int i = 0; i < namesAndValues.length; i += 2) {
            line.append(',').append(json(namesAndValues[i])).append(':').append(json(namesAndValues[i + 1]));
        }
        synchronized (System.out) {
            System.out.println(line.append('}'));
            System.out.flush();
        }
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            StringBuilder object = new StringBuilder("{");
            for (Map.Entry<?, ?> entry : new TreeMap<Object, Object>((Map<?, ?>) value).entrySet()) {
                object.append(object.length() > 1 ? "," : "").append(json(entry.getKey())).append(':');
                object.append(json(entry.getValue()));
            }
            return object.append('}').toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\' || c < ' ' || c > '~') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }

    private Traffic() {
    }
}
