package interop;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs several mqadmin verbs in one JVM, each announced by a line of its own: starting a JVM for each takes long. */
public final class Admin {
    public static void main(String[] verbs) {
        for (String verb : verbs) {
            System.out.println("\n### " + verb);  // some verbs end without a newline
            MQAdminStartup.main0(verb.split(" "), null);
            System.out.flush();
        }
        System.exit(0);
    }

    private Admin() {
    }
}
