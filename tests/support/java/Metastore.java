import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** A Hive Metastore on a port of the loopback: its own main listens on all interfaces. */
public class Metastore {
    /** A store in which each directory is said to be there: the metastore asks no more of it. */
    public static class Elsewhere extends RawLocalFileSystem {
        private URI name;

        @Override public void initialize(URI name, Configuration settings) throws IOException {
            this.name = name;
            setConf(settings);
        }
        // It is asked before it has a name.
        @Override public URI getUri() { return name == null ? URI.create("s3a:///") : name; }
        @Override protected void checkPath(Path path) { }
        @Override public boolean mkdirs(Path path) { return true; }
        @Override public boolean mkdirs(Path path, FsPermission permission) { return true; }
        @Override public FileStatus getFileStatus(Path path) { return new FileStatus(0, true, 1, 0, 0, path); }
        @Override public FileStatus[] listStatus(Path path) { return new FileStatus[0]; }
    }

    public static void main(String[] arguments) throws Exception {
        // Hadoop finds classes by it, and not those of a source file that is run.
        Thread.currentThread().setContextClassLoader(Metastore.class.getClassLoader());
        HiveConf settings = new HiveConf(Metastore.class);
        settings.setClass("fs.s3a.impl", Elsewhere.class, FileSystem.class);
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("hive.") || name.startsWith("javax.jdo.") || name.startsWith("datanucleus.")) {
                settings.set(name, System.getProperty(name));
            }
        }
        ThriftHiveMetastore.Iface handler = HiveMetaStore.newRetryingHMSHandler("metastore", settings, true);
        int port = Integer.parseInt(arguments[0]);
        TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", port));
        new TThreadPoolServer(new TThreadPoolServer.Args(socket).minWorkerThreads(2)
            .processor(new TSetIpAddressProcessor<>(handler))).serve();
    }
}
