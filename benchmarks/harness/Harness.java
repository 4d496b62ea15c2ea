import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's mutex, semaphore and latch, measured the way benchmarks/players.py measures everybody else.
 *
 * <p>Harness cycle|contend|lead ENDPOINT mutex|semaphore|latch NAME CONTENDERS-OR-TTL
 *
 * <p>It says "ready", and then answers each line it reads; the protocol stands in benchmarks/players.py. System.nanoTime
 * is CLOCK_MONOTONIC, which all processes of one machine share. One client; its mutexes exclude one another's threads.
 */
public class Harness {
    static final int SESSION_SECONDS = 60;
    static final int SEATS = 3;

    interface Place {
        void enter() throws Exception;

        void leave() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        Locale.setDefault(Locale.ROOT);
        int number = Integer.parseInt(words[4]);
        int ttl = words[0].equals("lead") ? number : SESSION_SECONDS;
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                words[1], ttl * 1000, 5000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        String path = "/curator/" + words[3];
        if (words[0].equals("lead")) {
            lead(open(client, words[2], path), client);
        } else if (words[0].equals("cycle")) {
            Place here = open(client, words[2], path);
            here.enter();
            here.leave();
            serve((seconds, count) -> cycle(here, seconds));
        } else {
            List<Place> places = new ArrayList<>();
            for (int i = 0; i < number; i++) places.add(open(client, words[2], path));
            ExecutorService threads = Executors.newFixedThreadPool(number);
            serve((seconds, count) -> contend(places.subList(0, count), threads, seconds));
            threads.shutdown();
        }
        System.exit(0);
    }

    static Place open(CuratorFramework client, String recipe, String path) throws Exception {
        switch (recipe) {
            case "mutex":
                InterProcessMutex mutex = new InterProcessMutex(client, path);
                return place(mutex::acquire, mutex::release);
            case "semaphore":
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, SEATS);
                Lease[] lease = new Lease[1];
                return place(() -> lease[0] = semaphore.acquire(), () -> semaphore.returnLease(lease[0]));
            default: // a latch is used up once it was closed
                LeaderLatch[] latch = new LeaderLatch[1];
                return place(() -> (latch[0] = started(new LeaderLatch(client, path))).await(), () -> latch[0].close());
        }
    }

    interface Step {
        void take() throws Exception;
    }

    static Place place(Step enter, Step leave) {
        return new Place() {
            public void enter() throws Exception {
                enter.take();
            }

            public void leave() throws Exception {
                leave.take();
            }
        };
    }

    static LeaderLatch started(LeaderLatch latch) throws Exception {
        latch.start();
        return latch;
    }

    interface Answer {
        String to(double seconds, int count) throws Exception;
    }

    static void serve(Answer answer) throws Exception {
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            System.out.println(answer.to(Double.parseDouble(words[0]), Integer.parseInt(words[1])));
        }
    }

    static String cycle(Place here, double seconds) throws Exception {
        List<Double> samples = new ArrayList<>();
        double worked = cpu(), until = now() + seconds;
        for (double began = now(); began < until || samples.size() < 5; began = now()) {
            here.enter();
            here.leave();
            samples.add(now() - began);
        }
        return String.format("{\"seconds\": %s, \"cpu_seconds\": %.6f}", samples, cpu() - worked);
    }

    static String contend(List<Place> places, ExecutorService threads, double seconds) throws Exception {
        double until = now() + seconds;
        List<Callable<List<double[]>>> contenders = new ArrayList<>();
        for (Place place : places) contenders.add(() -> takeTurns(place, until));
        List<String> told = new ArrayList<>();
        for (Future<List<double[]>> turns : threads.invokeAll(contenders))
            told.add(turns.get().stream().map(Arrays::toString).collect(Collectors.toList()).toString());
        return "{\"turns\": " + told + "}";
    }

    static List<double[]> takeTurns(Place place, double until) throws Exception {
        List<double[]> turns = new ArrayList<>();
        for (double called = now(); called < until; called = now()) {
            place.enter();
            double acquired = now();
            turns.add(new double[] {called, acquired, now()});
            place.leave();
        }
        return turns;
    }

    static void lead(Place here, CuratorFramework client) throws Exception {
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String command = lines.nextLine();
            double at = now();
            if (command.equals("campaign")) {
                here.enter();
                at = now();
            } else if (command.equals("resign")) {
                here.leave();
            } else {
                client.close();
            }
            System.out.println(String.format("{\"at\": %.9f}", at));
        }
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static double cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}
