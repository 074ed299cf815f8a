package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transaction producer that shares its group with others, until its standard input ends.
 *
 * <pre>
 *   NAMESERVER GROUP TOPIC
 * </pre>
 *
 * Each line it reads is the body of a transaction it begins and leaves unknown. Asked about any transaction of the
 * group, it commits those whose key is "commit" and rolls back the others, and prints which it was asked about.
 */
public final class TransactionMember {
    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args[1]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                say("{\"event\":\"asked\",\"body\":\"" + new String(message.getBody(), StandardCharsets.UTF_8) + "\"}");
                return "commit".equals(message.getKeys())
                    ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        // 5.x tells only those brokers of itself to whose topics it has sent.
        producer.send(new Message(args[2] + "Hello", "hello".getBytes(StandardCharsets.UTF_8)));
        say("{\"event\":\"ready\"}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] parts = line.split(" ", 2);
            Message message = new Message(args[2], "", parts[0], parts[1].getBytes(StandardCharsets.UTF_8));
            producer.sendMessageInTransaction(message, null);
            say("{\"event\":\"begun\",\"body\":\"" + parts[1] + "\"}");
        }
        producer.shutdown();
        say("{\"event\":\"gone\"}");
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
