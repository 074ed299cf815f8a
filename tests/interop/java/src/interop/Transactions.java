package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/**
 * Messages that wait for their sender's transaction.
 *
 * The brokers look after open ones every second, leave them alone for their first two, and ask three times.
 */
public final class Transactions {
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final String DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC";
    private static final int CHECKS_MAX = 3;
    private static final int COMMIT = 8;
    private static final int ROLLBACK = 12;
    private static final long QUIET_MILLIS = 5_000;

    public static void main(String[] args) {
        Scenario.Registry all = new Scenario.Registry();
        all.scenario("transaction-commit", Transactions::commit);
        all.scenario("transaction-rollback", Transactions::rollback);
        all.scenario("transaction-checked-and-committed", Transactions::checkedAndCommitted);
        all.scenario("transaction-checked-and-rolled-back", Transactions::checkedAndRolledBack);
        all.scenario("transaction-whose-sender-fails", Transactions::senderFails);
        all.scenario("transaction-checked-with-another-producer", Transactions::checkedWithAnotherProducer);
        all.scenario("transaction-never-known", Transactions::neverKnown);
        all.scenario("transaction-with-immunity", Transactions::withImmunity);
        all.scenario("transaction-with-delay-level", Transactions::withDelayLevel);
        all.scenario("transaction-committed-twice", Transactions::committedTwice);
        all.scenario("transaction-committed-after-rollback", Transactions::committedAfterRollback);
        all.scenario("transaction-committed-after-a-check", Transactions::committedAfterACheck);
        all.scenario("transaction-ended-by-others", Transactions::endedByOthers);
        all.run(args);
    }

    // --- the usual ways ----------------------------------------------------------------------------------

    private static void commit(World world, Observed seen) throws Exception {
        world.createTopic(1);
        TransactionMQProducer producer = producer(world, "a", new Decider() {
            @Override
            LocalTransactionState execute(Message message) throws Exception {
                seen.put("half", Later.waiting(world, HALF_TOPIC, 0));
                seen.put("visibleBefore", visible(world));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        Message message = new Message(world.topic(), "red", "k1 k2", "half".getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("color", "blue");
        message.setFlag(7);
        TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
        seen.put("status", sent.getSendStatus());
        seen.put("state", sent.getLocalTransactionState());
        seen.put("transactionIdIsMessageId", sent.getMsgId().equals(sent.getTransactionId()));
        MessageExt delivered = Later.await(world, world.topic(), 0, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        seen.put("sameId", sent.getMsgId().equals(delivered.getProperty("UNIQ_KEY")));
        Thread.sleep(QUIET_MILLIS);
        seen.put("visibleAfter", visible(world));
    }

    private static void rollback(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        decider.first = LocalTransactionState.ROLLBACK_MESSAGE;
        TransactionSendResult sent = producer(world, "a", decider).sendMessageInTransaction(world.message("no"), null);
        seen.put("status", sent.getSendStatus());
        seen.put("state", sent.getLocalTransactionState());
        Thread.sleep(QUIET_MILLIS);
        seen.put("visible", visible(world));
        seen.put("checks", decider.checked.size());
    }

    // --- asking the producer -----------------------------------------------------------------------------

    private static void checkedAndCommitted(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        decider.onCheck(2, LocalTransactionState.COMMIT_MESSAGE);
        Message message = new Message(world.topic(), "red", "k1", "half".getBytes(StandardCharsets.UTF_8));
        long sentAt = System.currentTimeMillis();
        TransactionSendResult sent = producer(world, "a", decider).sendMessageInTransaction(message, null);
        seen.put("state", sent.getLocalTransactionState());
        MessageExt delivered = Later.await(world, world.topic(), 0, 1).get(0);
        seen.put("delivered", Observed.message(delivered));
        seen.put("notBeforeItsTime", delivered.getStoreTimestamp() >= sentAt + 2_000);
        Thread.sleep(QUIET_MILLIS);
        seen.put("visible", visible(world));
        seen.put("checks", decider.told());
        seen.put("checkedWithItsId", decider.checked.get(0).getTransactionId().equals(sent.getTransactionId()));
    }

    private static void checkedAndRolledBack(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        decider.onCheck(1, LocalTransactionState.ROLLBACK_MESSAGE);
        producer(world, "a", decider).sendMessageInTransaction(world.message("half"), null);
        decider.await(1);
        Thread.sleep(QUIET_MILLIS);
        seen.put("visible", visible(world));
        seen.put("checks", decider.told());
    }

    private static void senderFails(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider() {
            @Override
            LocalTransactionState execute(Message message) {
                throw new IllegalStateException("the database is away");
            }
        };
        decider.onCheck(1, LocalTransactionState.COMMIT_MESSAGE);
        TransactionSendResult sent = producer(world, "a", decider).sendMessageInTransaction(world.message("half"), null);
        seen.put("state", sent.getLocalTransactionState());
        seen.put("delivered", Observed.messages(Later.await(world, world.topic(), 0, 1)));
        seen.put("checks", decider.told());
    }

    private static void checkedWithAnotherProducer(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider other = new Decider();
        other.onCheck(1, LocalTransactionState.COMMIT_MESSAGE);
        TransactionMQProducer second = producer(world, "b", other);
        MQClientInstance client = second.getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(world.topic());
        client.sendHeartbeatToAllBrokerWithLock();  // by itself it would say that it is there in 30 s
        Decider gone = new Decider();
        TransactionMQProducer sender = producer(world, "a", gone);
        TransactionSendResult sent = sender.sendMessageInTransaction(world.message("half"), null);
        seen.put("state", sent.getLocalTransactionState());
        sender.shutdown();
        seen.put("delivered", Observed.messages(Later.await(world, world.topic(), 0, 1)));
        seen.put("askedTheSender", gone.checked.size());
        seen.put("askedTheOther", other.told());
    }

    private static void neverKnown(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        producer(world, "a", decider).sendMessageInTransaction(world.message("half"), null);
        decider.await(CHECKS_MAX);
        Thread.sleep(QUIET_MILLIS);
        seen.put("discarded", Later.waiting(world, DISCARDED_TOPIC, 0));
        seen.put("visible", visible(world));
        seen.put("checks", decider.told());
    }

    private static void withImmunity(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        decider.onCheck(1, LocalTransactionState.COMMIT_MESSAGE);
        Message message = world.message("half");
        message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "6");
        producer(world, "a", decider).sendMessageInTransaction(message, null);
        Thread.sleep(4_000);
        seen.put("askedTooEarly", decider.checked.size());
        Thread.sleep(10_000);
        seen.put("visible", visible(world));
        seen.put("checks", decider.told());
    }

    private static void withDelayLevel(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        decider.first = LocalTransactionState.COMMIT_MESSAGE;
        Message message = world.message("half");
        message.setDelayTimeLevel(3);
        producer(world, "a", decider).sendMessageInTransaction(message, null);
        seen.put("delivered", Observed.messages(Later.await(world, world.topic(), 0, 1)));
    }

    // --- ends that come too late, or from others -----------------------------------------------------------

    private static void committedTwice(World world, Observed seen) throws Exception {
        world.createTopic(1);
        TransactionMQProducer producer = producer(world, "a", new Decider());
        TransactionSendResult sent = producer.sendMessageInTransaction(world.message("half"), null);
        seen.reply("first", end(world, sent, COMMIT));
        seen.reply("second", end(world, sent, COMMIT));
        seen.reply("rollback", end(world, sent, ROLLBACK));
        Thread.sleep(QUIET_MILLIS);
        seen.put("visible", visible(world));
    }

    private static void committedAfterRollback(World world, Observed seen) throws Exception {
        world.createTopic(1);
        TransactionMQProducer producer = producer(world, "a", new Decider());
        TransactionSendResult sent = producer.sendMessageInTransaction(world.message("half"), null);
        seen.reply("rollback", end(world, sent, ROLLBACK));
        seen.reply("commit", end(world, sent, COMMIT));
        Thread.sleep(QUIET_MILLIS);
        seen.put("visible", visible(world));
    }

    private static void committedAfterACheck(World world, Observed seen) throws Exception {
        world.createTopic(1);
        Decider decider = new Decider();
        TransactionSendResult sent = producer(world, "a", decider).sendMessageInTransaction(world.message("half"), null);
        decider.await(1);
        RemotingCommand reply = end(world, sent, COMMIT);
        int checks = decider.checked.size();
        seen.reply("late", reply);
        Thread.sleep(2 * QUIET_MILLIS);
        seen.put("visible", visible(world));
        seen.put("askedAfterwards", decider.checked.size() > checks);
    }

    private static void endedByOthers(World world, Observed seen) throws Exception {
        world.createTopic(1);
        TransactionMQProducer producer = producer(world, "a", new Decider());
        TransactionSendResult sent = producer.sendMessageInTransaction(world.message("half"), null);
        long place = place(world, sent);
        seen.reply("otherGroup", end(world, sent, "another", sent.getQueueOffset(), place, COMMIT));
        seen.reply("otherQueueOffset", end(world, sent, null, sent.getQueueOffset() + 100_000, place, COMMIT));
        seen.reply("otherPlace", end(world, sent, null, sent.getQueueOffset(), place + 1, COMMIT));
        seen.reply("placeBeyondTheEnd", end(world, sent, null, sent.getQueueOffset(), 1L << 40, COMMIT));
        seen.reply("rollbackByOtherGroup", end(world, sent, "another", sent.getQueueOffset(), place, ROLLBACK));
        seen.put("visible", visible(world));
        seen.reply("right", end(world, sent, COMMIT));
        seen.put("visibleAfterwards", Later.await(world, world.topic(), 0, 1).size());
    }

    // --- what several of them need ---------------------------------------------------------------------------

    /** Says how transactions end, and puts down what it was asked; what nobody told it, it does not know. */
    private static class Decider implements TransactionListener {
        final List<MessageExt> checked = new CopyOnWriteArrayList<>();
        LocalTransactionState first = LocalTransactionState.UNKNOW;
        private int decidingCheck = Integer.MAX_VALUE;
        private LocalTransactionState decision = LocalTransactionState.UNKNOW;

        void onCheck(int number, LocalTransactionState state) {
            decidingCheck = number;
            decision = state;
        }

        LocalTransactionState execute(Message message) throws Exception {
            return first;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            try {
                return execute(message);
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checked.add(message);
            return checked.size() >= decidingCheck ? decision : LocalTransactionState.UNKNOW;
        }

        void await(int count) throws Exception {
            for (long end = System.currentTimeMillis() + 30_000; checked.size() < count; Thread.sleep(50)) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("asked " + checked.size() + " times, not " + count);
                }
            }
        }

        /** The questions, without places in queues that others share. */
        List<Object> told() {
            for (MessageExt message : checked) {
                message.setQueueOffset(0);
                message.getProperties().computeIfPresent("TRAN_PREPARED_QUEUE_OFFSET", (name, value) -> "some");
            }
            return Observed.messages(checked);
        }
    }

    private static TransactionMQProducer producer(World world, String instance, Decider decider) throws Exception {
        String before = world.topic() + "-before";  // no half message is to lie at 0 of the log: that also means none
        world.createTopic(before, 1, 1, World.READ_WRITE);
        DefaultMQProducer other = new DefaultMQProducer("others-" + world.name);
        world.start(other, "other-" + instance + "-" + world.name);
        other.send(new Message(before, new byte[] {1}));
        TransactionMQProducer producer = new TransactionMQProducer("producers-" + world.name);
        producer.setTransactionListener(decider);
        world.start(producer, instance + "-" + world.name);
        return producer;
    }

    private static int visible(World world) throws Exception {
        return world.stored(world.topic(), 0).size();
    }

    private static RemotingCommand end(World world, TransactionSendResult sent, int outcome) throws Exception {
        return end(world, sent, null, sent.getQueueOffset(), place(world, sent), outcome);
    }

    /** Where a half message is in the log: the public API does not tell. */
    private static long place(World world, TransactionSendResult sent) throws Exception {
        for (int i = 0; i < 100; i++) {
            for (MessageExt half : World.decode(world.call(RequestCode.PULL_MESSAGE, null, world.pullFields(
                HALF_TOPIC, 0, sent.getQueueOffset(), "consumerGroup", "readers-" + world.name)))) {
                if (sent.getMsgId().equals(half.getProperty("UNIQ_KEY"))) {
                    return half.getCommitLogOffset();
                }
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("no half message at " + sent.getQueueOffset());
    }

    private static RemotingCommand end(
        World world, TransactionSendResult sent, String group, long queueOffset, long place, int outcome)
        throws Exception {
        return world.call(RequestCode.END_TRANSACTION, null,
            "topic", world.topic(), "producerGroup", group == null ? "producers-" + world.name : group,
            "tranStateTableOffset", queueOffset, "commitLogOffset", place, "commitOrRollback", outcome,
            "fromTransactionCheck", false, "msgId", sent.getMsgId(), "transactionId", sent.getTransactionId());
    }

    private Transactions() {
    }
}
