import t from 'tap';
import { readBulk, readDatagrams } from '../../bench/data/loads/iperf3.ts';
import { readSockperf } from '../../bench/data/loads/sockperf.ts';
import { readWrk } from '../../bench/data/loads/wrk.ts';
import { combine } from '../../bench/data/rounds.ts';
import type { Summary } from '../../bench/report/stats.ts';

t.test('what wrk has measured is read, and no answer at all is an error', (t) => {
  const line =
    '{"requests":3000,"us":2000000,"p50":900,"p90":1500,"p99":4000,"p999":9000,"failed":1000}';
  t.same(readWrk(`Running 2s test\n${line}\n`), {
    total: 3000,
    rate: 1500,
    latency: { p50: 900, p90: 1500, p99: 4000, p999: 9000 },
    lost: 0.25,
  });
  t.throws(() => readWrk('unable to connect\n'), /wrk: unable to connect/);
  t.throws(() => readWrk(line.replace('3000', '0')), /no request was answered, 1000 failed/);
  t.end();
});

t.test('iperf3 reports bytes that arrived, datagrams that arrived, and errors', (t) => {
  t.same(readBulk({ end: { sum_received: { bytes: 4e9, seconds: 2 } } }), {
    total: 4e9,
    rate: 2e9,
  });
  t.throws(() => readBulk({ error: 'the server is busy' }), /the server is busy/);
  t.throws(() => readBulk({ end: { sum_received: { bytes: 0, seconds: 2 } } }), /nothing has/);
  t.same(readDatagrams({ end: { sum: { packets: 100, lost_packets: 25, seconds: 3 } } }), {
    total: 75,
    rate: 25,
    lost: 0.25,
  });
  t.throws(() => readDatagrams({ end: { sum: { packets: 9, lost_packets: 9, seconds: 3 } } }));
  t.end();
});

/** What sockperf 3.7 prints, shortened. */
const SOCKPERF = `sockperf: == version #3.7-no.git ==
sockperf: \u001B[2;35m[Total Run] RunTime=2.100 sec; Warm up time=400 msec; SentMessages=60000; ReceivedMessages=59000\u001B[0m
sockperf: ========= Printing statistics for Server No: 0
sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=50000; ReceivedMessages=49000
sockperf: ---> <MAX> observation = 1000.000
sockperf: ---> percentile 99.999 =  990.500
sockperf: ---> percentile 99.990 =  900.500
sockperf: ---> percentile 99.900 =  800.500
sockperf: ---> percentile 99.000 =  100.250
sockperf: ---> percentile 90.000 =   50.125
sockperf: ---> percentile 75.000 =   40.000
sockperf: ---> percentile 50.000 =   30.500
`;

t.test('sockperf is read with its colours, of the whole run', (t) => {
  const sample = readSockperf(SOCKPERF);
  t.equal(sample.total, 59_000, 'all that CPU was used for');
  t.equal(Math.round(sample.rate), 28_095);
  t.same(sample.latency, { p50: 30.5, p90: 50.125, p99: 100.25, p999: 800.5 });
  t.equal(sample.lost?.toFixed(4), '0.0167');
  t.throws(() => readSockperf('sockperf: No messages were received'), /no answer came/);
  t.end();
});

const sample = (total: number, processes: number, machine: number) => ({
  total,
  rate: total / 2,
  cpu: { processes, machine },
  run: 2 * processes,
  latency: { p50: total, p90: 2, p99: 3, p999: 4 },
});
const rounded = (summary: Summary | undefined): number[] =>
  [summary?.median ?? 0, summary?.min ?? 0, summary?.max ?? 0].map(Math.round);
const units = { rate: { name: 'k/s', factor: 1e-3 }, cpu: { name: 'µs/request', factor: 1e6 } };

t.test('CPU is divided by the work of its own round, then the median counts', (t) => {
  const rounds = [sample(1000, 0.01, 0.1), sample(4000, 0.08, 0.2), sample(2000, 0.03, 0.3)];
  const result = combine(units, rounds, true);
  t.equal(result?.own?.samples, 3);
  t.same(rounded(result?.own), [15, 10, 20]);
  t.same(rounded(result?.machine), [100, 50, 150]);
  t.same(rounded(result?.run), [30, 20, 40]);
  t.equal(result?.rate.median, 1);
  t.equal(result?.latency?.p50, 2000);
  t.equal(combine(units, rounds, false)?.own, undefined, 'where there is no process');
  t.equal(combine(units, [], true), undefined, 'where every round failed');
  t.end();
});
