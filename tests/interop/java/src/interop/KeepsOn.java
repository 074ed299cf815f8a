package interop;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that sends one message after the other, whatever happens, until its standard input ends.
 *
 * <pre>
 *   NAMESERVER GROUP TOPIC MILLIS_BETWEEN
 * </pre>
 *
 * Prints a JSON object when it is ready, and one for each send: "sent" with the status, or "failed".
 */
public final class KeepsOn {
    private static volatile boolean isOver;

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.start();
        say("{\"event\":\"ready\"}");
        Thread watcher = new Thread(KeepsOn::awaitEnd);
        watcher.setDaemon(true);
        watcher.start();
        for (int n = 0; !isOver; n++) {
            send(producer, args[2], "kept-" + n);
            Thread.sleep(Long.parseLong(args[3]));
        }
        producer.shutdown();
        say("{\"event\":\"gone\"}");
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String topic, String body) throws InterruptedException {
        try {
            SendResult result = producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
            tell("sent", body, result.getSendStatus().name());
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            tell("failed", body, e.getClass().getSimpleName());
        }
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (java.io.IOException e) {
            e.printStackTrace();
        }
        isOver = true;
    }

    private static void tell(String event, String body, String status) {
        say("{\"event\":\"" + event + "\",\"body\":\"" + body + "\",\"status\":\"" + status + "\",\"ms\":"
            + System.currentTimeMillis() + "}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
