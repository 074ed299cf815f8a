package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What a scenario saw, by name, printed as JSON. What legitimately differs from run to run is masked:
 *
 * <pre>
 *   127.0.0.1:10911   -> ADDRESS        a unique or offset id (32, 40 or 56 hex digits) -> ID
 *   1700000000000     -> TIME           process and hash numbers in client ids -> CLIENT
 * </pre>
 *
 * A remark is put down as it is; whoever compares two brokers compares codes, and that a remark is there.
 */
public final class Observed {
    private static final Pattern CLIENT = Pattern.compile("(127\\.0\\.0\\.1)@\\d+#\\d+");
    private static final Pattern ADDRESS = Pattern.compile("127\\.0\\.0\\.1:\\d+");
    private static final Pattern ID = Pattern.compile("\\b(?:[0-9A-F]{32}|[0-9A-F]{40}|[0-9A-F]{56})\\b");
    private static final Pattern UUID = Pattern.compile("\\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\b");
    private static final Pattern TIME = Pattern.compile("\\b1[6-9]\\d{11}\\b");

    private final Map<String, Object> values = new LinkedHashMap<>();

    /** Something that may fail as a client sees it. */
    public interface Attempt {
        Object run() throws Exception;
    }

    public synchronized void put(String name, Object value) {
        values.put(name, value);
    }

    /** A whole answer: code, remark, fields. Its body is for the scenario to tell. */
    public void reply(String name, RemotingCommand reply) {
        put(name, reply(reply));
    }

    public static Observed reply(RemotingCommand reply) {
        Observed told = new Observed();
        told.put("code", reply.getCode());
        told.put("remark", reply.getRemark());
        told.put("fields", reply.getExtFields() == null ? new TreeMap<>() : new TreeMap<>(reply.getExtFields()));
        return told;
    }

    /** What came of an attempt through the public API: its result, or the error's class, code and words. */
    public void attempt(String name, Attempt attempt) {
        Object outcome;
        try {
            outcome = attempt.run();
        } catch (Exception e) {
            outcome = failure(e);
        }
        put(name, outcome instanceof SendResult ? sent((SendResult) outcome) : outcome);
    }

    public static Observed failure(Throwable e) {
        Observed told = new Observed();
        told.put("error", e.getClass().getSimpleName());
        if (e instanceof MQBrokerException) {
            told.put("code", ((MQBrokerException) e).getResponseCode());
            told.put("remark", ((MQBrokerException) e).getErrorMessage());
        } else if (e instanceof MQClientException) {
            told.put("code", ((MQClientException) e).getResponseCode());
            told.put("remark", ((MQClientException) e).getErrorMessage());
        } else {
            told.put("remark", e.getMessage());
        }
        return told;
    }

    public void sent(String name, SendResult result) {
        put(name, sent(result));
    }

    public static Observed sent(SendResult result) {
        Observed told = new Observed();
        told.put("status", result.getSendStatus());
        told.put("ids", result.getMsgId() == null ? 0 : result.getMsgId().split(",").length);
        told.put("offsetIds", result.getOffsetMsgId() == null ? 0 : result.getOffsetMsgId().split(",").length);
        told.put("queue", result.getMessageQueue().getQueueId());
        told.put("offset", result.getQueueOffset());
        told.put("transactionId", result.getTransactionId());
        told.put("region", result.getRegionId());
        told.put("traceOn", result.isTraceOn());
        return told;
    }

    /**
     * A message as a consumer has it. Two properties are left out, because every message would tell of them:
     * WAIT=true and the checksum. The scenario stored-properties compares those.
     */
    public static Observed message(MessageExt message) {
        Observed told = new Observed();
        told.put("topic", message.getTopic());
        told.put("queue", message.getQueueId());
        told.put("offset", message.getQueueOffset());
        told.put("body", body(message.getBody()));
        told.put("flag", message.getFlag());
        told.put("sysFlag", message.getSysFlag());
        told.put("reconsumeTimes", message.getReconsumeTimes());
        told.put("preparedTransactionOffset", message.getPreparedTransactionOffset() == 0 ? 0 : "some");
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("__CRC32#");
        properties.remove("WAIT", "true");
        told.put("properties", properties);
        return told;
    }

    public static List<Object> messages(Collection<MessageExt> messages) {
        List<Object> all = new ArrayList<>();
        for (MessageExt message : messages) {
            all.add(message(message));
        }
        return all;
    }

    /** The names of a message's properties, sorted, without the two that are left out everywhere. */
    public static List<String> names(Map<String, String> properties) {
        List<String> names = new ArrayList<>(new TreeMap<>(properties).keySet());
        names.removeAll(Arrays.asList("__CRC32#", "WAIT"));
        return names;
    }

    /** Long bodies by their length and hash. */
    private static String body(byte[] body) {
        if (body == null) {
            return null;
        }
        if (body.length > 200) {
            return body.length + " bytes, hash " + Arrays.hashCode(body);
        }
        return new String(body, StandardCharsets.UTF_8);
    }

    @Override
    public synchronized String toString() {
        return json(values);
    }

    private static String json(Object value) {
        if (value instanceof Observed) {
            return value.toString();
        }
        if (value == null || value instanceof Boolean || value instanceof Number && !isTime(value)) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            List<String> entries = new ArrayList<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                entries.add(text(String.valueOf(entry.getKey())) + ":" + json(entry.getValue()));
            }
            return "{" + String.join(",", entries) + "}";
        }
        if (value instanceof Object[]) {
            return json(Arrays.asList((Object[]) value));
        }
        if (value instanceof Collection) {
            List<String> entries = new ArrayList<>();
            for (Object entry : (Collection<?>) value) {
                entries.add(json(entry));
            }
            return "[" + String.join(",", entries) + "]";
        }
        return text(masked(String.valueOf(value)));
    }

    private static boolean isTime(Object value) {
        return TIME.matcher(String.valueOf(value)).matches();
    }

    private static String masked(String text) {
        String masked = CLIENT.matcher(text).replaceAll("CLIENT");
        masked = ADDRESS.matcher(masked).replaceAll("ADDRESS");
        masked = ID.matcher(masked).replaceAll("ID");
        masked = UUID.matcher(masked).replaceAll("ID");
        return TIME.matcher(masked).replaceAll("TIME");
    }

    private static String text(String value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\' || c < ' ' || c > '~') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
