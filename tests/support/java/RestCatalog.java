import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.*;
import org.eclipse.jetty.ee10.servlet.*;
import org.eclipse.jetty.server.Server;

/** Iceberg's REST catalog, which vends credentials: java -cp "jars/*" RestCatalog.java PORT name=value... */
public class RestCatalog {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = Arrays.stream(arguments).skip(1)
        .map(each -> each.split("=", 2)).collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    var catalog = CatalogUtil.buildIcebergCatalog("rest", properties, null);
    var adapter = make("RESTServerCatalogAdapter", make("RESTCatalogServer$CatalogContext", catalog, properties));
    ServletContextHandler context = new ServletContextHandler("/");
    context.addServlet(new ServletHolder(new RESTCatalogServlet((RESTCatalogAdapter) adapter)), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(context);
    server.start();
  }
  static Object make(String name, Object... given) throws Exception {
    Constructor<?> found = Class.forName("org.apache.iceberg.rest." + name).getDeclaredConstructors()[0];
    found.setAccessible(true); // the classes of the fixture are its package's own
    return found.newInstance(given);
  }
}
