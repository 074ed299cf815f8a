package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The hook that signs requests, when -Dacl.key= and -Dacl.secret= are given; otherwise none. */
final class Signed {
    static RPCHook hook() {
        String key = System.getProperty("acl.key");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getProperty("acl.secret")));
    }

    private Signed() {
    }
}
