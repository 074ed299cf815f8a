package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Named things to try against a broker. Each prints one line of JSON: its name and what was observed.
 *
 * <pre>
 *   public static void main(String[] args) {
 *       Scenario.Registry all = new Scenario.Registry();
 *       all.scenario("sync-send", Sending::syncSend);
 *       all.run(args);                                  // NAMESERVER BROKER [NAME ...]
 *   }
 * </pre>
 *
 * Several run at a time, each on topics and groups of its own name, so that none sees another's messages.
 * One that fails or takes too long says so in its own line; the others go on.
 */
public final class Scenario {
    /** What a scenario does: try something in this world, and put down what was seen. */
    public interface Script {
        void run(World world, Observed seen) throws Exception;
    }

    private static final int AT_A_TIME = 6;
    private static final int SECONDS_MAX = 60;

    private final String name;
    private final Script script;
    private final int secondsMax;

    private Scenario(String name, Script script, int secondsMax) {
        this.name = name;
        this.script = script;
        this.secondsMax = secondsMax;
    }

    /** All scenarios of a programme, in the order they are told. */
    public static final class Registry {
        private final List<Scenario> scenarios = new ArrayList<>();

        public void scenario(String name, Script script) {
            scenario(name, SECONDS_MAX, script);
        }

        public void scenario(String name, int secondsMax, Script script) {
            scenarios.add(new Scenario(name, script, secondsMax));
        }

        /** Runs those that are named, or all, and ends the process: client threads are not all daemons. */
        public void run(String[] args) {
            List<String> names = Arrays.asList(args).subList(2, args.length);
            ExecutorService several = Executors.newFixedThreadPool(AT_A_TIME);
            for (Scenario scenario : scenarios) {
                if (names.isEmpty() || names.contains(scenario.name)) {
                    several.submit(() -> scenario.tell(args[0], args[1]));
                }
            }
            several.shutdown();
            try {
                several.awaitTermination(1, TimeUnit.HOURS);
            } catch (InterruptedException e) {
                System.exit(1);
            }
            System.exit(0);
        }
    }

    private void tell(String nameServer, String broker) {
        Observed seen = new Observed();
        ExecutorService own = Executors.newSingleThreadExecutor();
        try (World world = new World(name, nameServer, broker)) {
            Future<?> done = own.submit(() -> {
                script.run(world, seen);
                return null;
            });
            try {
                done.get(secondsMax, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                done.cancel(true);
                seen.put("BROKEN", "not done after " + secondsMax + " s");
            } catch (ExecutionException e) {
                e.getCause().printStackTrace();
                seen.put("BROKEN", String.valueOf(e.getCause()));
            }
        } catch (Exception e) {
            e.printStackTrace();
            seen.put("BROKEN", String.valueOf(e));
        } finally {
            own.shutdownNow();
        }
        Observed line = new Observed();
        line.put("scenario", name);
        line.put("observed", seen);
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
