package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * What a scenario works with: the addresses, clients of the public API, and raw requests where that has none.
 *
 * Everything started through it is stopped with it. Topic and group are named after the scenario.
 */
public final class World implements AutoCloseable {
    public static final String BROKER_NAME = "broker-a";
    public static final int READ_WRITE = 6;
    public static final long TIMEOUT_MILLIS = 15_000;

    public final String name;
    public final String nameServer;
    public final String broker;
    private final Deque<Runnable> toStop = new ArrayDeque<>();
    private DefaultMQProducer producer;
    private Raw raw;

    World(String name, String nameServer, String broker) {
        this.name = name;
        this.nameServer = nameServer;
        this.broker = broker;
    }

    public String topic() {
        return "topic-" + name;
    }

    public String group() {
        return "group-" + name;
    }

    public MessageQueue queue(int queueId) {
        return new MessageQueue(topic(), BROKER_NAME, queueId);
    }

    // --- clients of the public API ---------------------------------------------------------------------

    /** The scenario's usual producer, started on first use. */
    public synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("producers-" + name);
            start(producer, "producer-" + name);
        }
        return producer;
    }

    /** Starts a producer of the scenario's own making; `instance` gives it connections of its own. */
    public void start(DefaultMQProducer other, String instance) throws Exception {
        other.setNamesrvAddr(nameServer);
        other.setClientIP("127.0.0.1");
        other.setInstanceName(instance);
        other.setSendMsgTimeout((int) TIMEOUT_MILLIS);
        other.setRetryTimesWhenSendFailed(0);
        other.setRetryTimesWhenSendAsyncFailed(0);
        other.start();
        onClose(other::shutdown);
    }

    /** Starts a push consumer whose listener and subscriptions are set. */
    public void start(DefaultMQPushConsumer consumer, String instance) throws Exception {
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.start();
        onClose(consumer::shutdown);
    }

    @SuppressWarnings("deprecation")
    public DefaultMQPullConsumer pullConsumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group());
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("puller-" + name);
        consumer.start();
        onClose(consumer::shutdown);
        return consumer;
    }

    public synchronized void onClose(Runnable stop) {
        toStop.push(stop);
    }

    // --- raw requests ----------------------------------------------------------------------------------

    /** A connection of its own to the broker, which puts down what the broker asks of it. */
    public static final class Raw {
        public final BlockingQueue<RemotingCommand> asked = new LinkedBlockingQueue<>();
        private final NettyRemotingClient client;
        private final String broker;

        Raw(String broker) {
            this.broker = broker;
            client = new NettyRemotingClient(new NettyClientConfig());
            NettyRequestProcessor noted = new NettyRequestProcessor() {
                @Override
                public RemotingCommand processRequest(
                    io.netty.channel.ChannelHandlerContext context, RemotingCommand request) {
                    asked.add(request);
                    return null;
                }

                @Override
                public boolean rejectRequest() {
                    return false;
                }
            };
            for (int code : new int[] {
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.CHECK_TRANSACTION_STATE,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.RESET_CONSUMER_CLIENT_OFFSET}) {
                client.registerProcessor(code, noted, Executors.newSingleThreadExecutor());
            }
            client.start();
        }

        public RemotingCommand call(int code, byte[] body, Object... namesAndValues) throws Exception {
            return client.invokeSync(broker, request(code, body, namesAndValues), TIMEOUT_MILLIS);
        }

        public void oneWay(int code, byte[] body, Object... namesAndValues) throws Exception {
            client.invokeOneway(broker, request(code, body, namesAndValues), TIMEOUT_MILLIS);
        }

        public void close() {
            client.shutdown();
        }
    }

    public static RemotingCommand request(int code, byte[] body, Object... namesAndValues) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> fields = new HashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            if (namesAndValues[i + 1] != null) {
                fields.put(String.valueOf(namesAndValues[i]), String.valueOf(namesAndValues[i + 1]));
            }
        }
        request.setExtFields(fields);
        request.setBody(body);
        return request;
    }

    /** Another raw connection, for a second client. */
    public Raw newRaw() {
        Raw other = new Raw(broker);
        onClose(other::close);
        return other;
    }

    /** One request on the scenario's usual raw connection. */
    public synchronized RemotingCommand call(int code, byte[] body, Object... namesAndValues) throws Exception {
        if (raw == null) {
            raw = newRaw();
        }
        return raw.call(code, body, namesAndValues);
    }

    // --- what most scenarios need first ----------------------------------------------------------------

    public void createTopic(int queues) throws Exception {
        createTopic(topic(), queues, queues, READ_WRITE);
    }

    /** Creates or changes a topic on the broker, and waits until the name server knows its route. */
    public void createTopic(String topic, int readQueues, int writeQueues, int perm) throws Exception {
        RemotingCommand reply = call(RequestCode.UPDATE_AND_CREATE_TOPIC, null, "topic", topic, "defaultTopic", "TBW102",
            "readQueueNums", readQueues, "writeQueueNums", writeQueues, "perm", perm,
            "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false);
        if (reply.getCode() != 0) {
            throw new IllegalStateException("topic " + topic + ": " + reply.getCode() + " " + reply.getRemark());
        }
        NettyRemotingClient asker = new NettyRemotingClient(new NettyClientConfig());
        asker.start();
        try {
            for (int i = 0; i < 100; i++) {
                RemotingCommand route = asker.invokeSync(
                    nameServer, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, null, "topic", topic), TIMEOUT_MILLIS);
                if (route.getCode() == 0) {
                    return;
                }
                Thread.sleep(50);
            }
        } finally {
            asker.shutdown();
        }
        throw new IllegalStateException("no route of " + topic + " after 5 s");
    }

    public Message message(String body) {
        return new Message(topic(), body.getBytes(StandardCharsets.UTF_8));
    }

    /** Sends bodies to one queue, each before the next; readers can see them when it returns. */
    public void fill(int queueId, String... bodies) throws Exception {
        for (String body : bodies) {
            producer().send(message(body), queue(queueId));
        }
        settle();
    }

    /** Waits until what was acknowledged can be read: an Apache broker fills its consume queues a little later. */
    public void settle() throws Exception {
        for (int i = 0; i < 200; i++) {
            RemotingCommand reply = call(RequestCode.GET_BROKER_RUNTIME_INFO, null);
            String figures = new String(reply.getBody(), StandardCharsets.UTF_8).replace(" ", "");
            if (figures.contains("\"dispatchBehindBytes\":\"0\"")) {
                return;
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("the broker's consume queues are behind for 4 s");
    }

    /** Pulls once, without waiting, from the scenario's topic; the answer as it came. */
    public RemotingCommand pull(int queueId, long offset, Object... more) throws Exception {
        return call(RequestCode.PULL_MESSAGE, null, pullFields(topic(), queueId, offset, more));
    }

    /** The fields of a pull with an own subscription to everything and no suspension; `more` goes over them. */
    public Object[] pullFields(String topic, int queueId, long offset, Object... more) {
        Object[] usual = {
            "consumerGroup", group(), "topic", topic, "queueId", queueId, "queueOffset", offset,
            "maxMsgNums", 32, "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0,
            "subscription", "*", "subVersion", 0, "expressionType", "TAG"};
        Object[] all = new Object[usual.length + more.length];
        System.arraycopy(usual, 0, all, 0, usual.length);
        System.arraycopy(more, 0, all, usual.length, more.length);
        return all;
    }

    public static List<MessageExt> decode(RemotingCommand reply) {
        return MessageDecoder.decodes(ByteBuffer.wrap(reply.getBody() == null ? new byte[0] : reply.getBody()));
    }

    /** All messages of a queue of this topic as they are stored now, read by a group of its own. */
    public List<MessageExt> stored(String topic, int queueId) throws Exception {
        settle();
        return decode(call(RequestCode.PULL_MESSAGE, null,
            pullFields(topic, queueId, 0, "consumerGroup", "readers-" + name)));
    }

    @Override
    public void close() {
        while (!toStop.isEmpty()) {
            try {
                toStop.pop().run();
            } catch (RuntimeException e) {
                e.printStackTrace();
            }
        }
    }
}
