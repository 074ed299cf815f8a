package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What the Java client's allocation strategies give each member, for many numbers of queues and members.
 *
 * <p>One line each: strategy, brokers, queues per broker, members, this member's number, then its queues as
 * broker:queue. Brokers are named r0@b0, r1@b1, r2@b2, ...; members r0-c0, r1-c1, r0-c2, r1-c3, ...
 */
public final class Shares {
    public static void main(String[] args) {
        for (int brokers = 1; brokers <= 3; brokers++) {
            for (int queues = 1; queues <= 9; queues++) {
                for (int members = 1; members <= 7; members++) {
                    print(brokers, queues, members);
                }
            }
        }
        System.exit(0);
    }

    private static void print(int brokers, int queues, int members) {
        List<MessageQueue> all = new ArrayList<>();
        for (int broker = 0; broker < brokers; broker++) {
            for (int queue = 0; queue < queues; queue++) {
                all.add(new MessageQueue("orders", "r" + broker + "@b" + broker, queue));
            }
        }
        List<String> ids = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            ids.add("r" + member % 2 + "-c" + member);
        }
        Collections.sort(all);
        Collections.sort(ids);
        for (String[] named : new String[][] {{"AVG"}, {"AVG_BY_CIRCLE"}, {"CONSISTENT_HASH"}, {"ROOM"}, {"NEAR"}}) {
            AllocateMessageQueueStrategy strategy = strategy(named[0]);
            for (int member = 0; member < members; member++) {
                StringBuilder line = new StringBuilder(
                    String.join(" ", Arrays.asList(named[0], "" + brokers, "" + queues, "" + members, "" + member)));
                for (MessageQueue queue : strategy.allocate("g", ids.get(member), all, ids)) {
                    line.append(" ").append(queue.getBrokerName()).append(":").append(queue.getQueueId());
                }
                System.out.println(line);
            }
        }
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(Arrays.asList("r0", "r2")));
                return byRoom;
            default:
                return new AllocateMachineRoomNearby(
                    new AllocateMessageQueueAveragely(),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override
                        public String consumerDeployIn(String id) {
                            return id.split("-")[0];
                        }
                    });
        }
    }
}
