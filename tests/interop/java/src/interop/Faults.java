package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Sends one message after the other with the official client and prints what became of each.
 *
 * <pre>
 *   NAMESERVER TOPIC TIMEOUT_MS sync|async BODY...
 * </pre>
 *
 * The body says to the other side what it shall do. An outcome is "stored STATUS", "refused CODE" or
 * "unreachable".
 */
public final class Faults {
    private static final int FIRST_CODE_OF_THE_CLIENT_ITSELF = 10000;

    public static void main(String[] args) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("faults");
            producer.setNamesrvAddr(args[0]);
            producer.setSendMsgTimeout(Integer.parseInt(args[2]));
            producer.start();
            for (int i = 4; i < args.length; i++) {
                Message message = new Message(args[1], args[i].getBytes(StandardCharsets.UTF_8));
                String outcome = args[3].equals("sync") ? sync(producer, message) : async(producer, message);
                System.out.println("{\"event\":\"outcome\",\"body\":\"" + args[i] + "\",\"outcome\":\"" + outcome + "\"}");
            }
            System.exit(0);  // client threads are not all daemons: only exit ends them
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static String sync(DefaultMQProducer producer, Message message) throws InterruptedException {
        try {
            return "stored " + producer.send(message).getSendStatus();
        } catch (MQBrokerException | MQClientException | RemotingException e) {
            return failure(e);
        }
    }

    private static String async(DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<String> outcome = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                outcome.complete("stored " + sent.getSendStatus());
            }

            @Override
            public void onException(Throwable e) {
                outcome.complete(failure(e));
            }
        });
        return outcome.get(60, TimeUnit.SECONDS);
    }

    private static String failure(Throwable e) {
        if (e instanceof MQBrokerException) {
            return "refused " + ((MQBrokerException) e).getResponseCode();
        }
        if (e instanceof MQClientException) {
            int code = ((MQClientException) e).getResponseCode();
            return code < 0 || code > FIRST_CODE_OF_THE_CLIENT_ITSELF ? "unreachable" : "refused " + code;
        }
        return "unreachable";
    }
}
