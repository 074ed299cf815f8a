package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that shares its group with others, until its standard input ends.
 *
 * <pre>
 *   NAMESERVER GROUP TOPIC concurrently|orderly average|circle|hash MILLIS_PER_MESSAGE
 * </pre>
 *
 * Prints a JSON object when it is ready, and one for the beginning and one for the end of each message.
 */
public final class Member {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        if (args[4].equals("circle")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        } else if (args[4].equals("hash")) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        } else {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragely());
        }
        long millis = Long.parseLong(args[5]);
        if (args[3].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                handle(messages, millis);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                handle(messages, millis);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        say("{\"event\":\"ready\"}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (input.readLine() != null) {
            continue;
        }
        consumer.shutdown();
        say("{\"event\":\"gone\"}");
        System.exit(0);
    }

    private static void handle(List<MessageExt> messages, long millis) {
        for (MessageExt message : messages) {
            tell("begin", message);
            try {
                Thread.sleep(millis);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            tell("end", message);
        }
    }

    private static void tell(String event, MessageExt message) {
        say("{\"event\":\"" + event + "\",\"body\":\"" + new String(message.getBody(), StandardCharsets.UTF_8)
            + "\",\"queueId\":" + message.getQueueId() + ",\"ms\":" + System.currentTimeMillis() + "}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
