import t, { type Test } from 'tap';
import { createMetrics, type Metrics } from '../../src/observe/metrics.ts';
import { inFormat } from '../../src/observe/scrape-format.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { connectFailed } from '../../src/proxysocket/events.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';

/** Metrics of service ports that have one refused attempt each. */
function refusing(t: Test, names: readonly string[], exemplars: boolean): Metrics {
  const metrics = createMetrics({ version: '0', exemplars });
  t.teardown(() => metrics.close());
  const snapshot = (wanted: Iterable<string> = names) =>
    [...wanted].map((name) => {
      const counters = newCounters();
      counters.connectErrors.refused = 1;
      return { name, protocol: 'TCP' as const, listeners: [], endpoints: 1, counters };
    });
  metrics.observe({
    engine: 'node',
    portal: 'none',
    limits: DEFAULT_LIMITS,
    names: () => [...names],
    snapshot,
    problems: () => [],
  });
  return metrics;
}

function fails(servicePort: string, endpoint: string): void {
  if (!connectFailed.hasSubscribers) return;
  const error = new Error('refused');
  connectFailed.publish({ servicePort, endpoint, attempt: 1, cause: 'refused', error });
}

async function errorsIn(metrics: Metrics, text: 'openmetrics' | 'prometheus'): Promise<string[]> {
  let page = '';
  for await (const piece of inFormat(metrics.render(text), { text, encoding: 'identity' })) {
    page += String(piece);
  }
  return page.split('\n').filter((line) => line.startsWith('kpng_userspace_connect_errors_total{'));
}

t.test('OpenMetrics names the endpoint that failed last, if that is wanted', async (t) => {
  const names = ['ns/a:http', 'ns/b:http'];
  const metrics = refusing(t, names, true);
  fails('ns/a:http', '10.0.0.1:80');
  fails('ns/a:http', '[fd00::2]:80');
  const [first, second] = await errorsIn(metrics, 'openmetrics');
  t.match(
    first,
    /^\S+service="a"\S+cause="refused"} 1 # {endpoint="\[fd00::2\]:80"} 1 \d+(\.\d+)?$/,
  );
  t.match(second, /cause="refused"} 1$/, 'nothing has failed there since the start');
  t.notMatch(await errorsIn(metrics, 'prometheus'), / # /, 'the other format has none');
  names.shift();
  await errorsIn(metrics, 'openmetrics');
  names.unshift('ns/a:http');
  t.match((await errorsIn(metrics, 'openmetrics'))[0], /} 1$/, 'forgotten with its service port');
});

t.test('by default there are none, and no failure is reported for them', async (t) => {
  const metrics = refusing(t, ['ns/a:http'], false);
  t.notOk(connectFailed.hasSubscribers);
  fails('ns/a:http', '10.0.0.1:80');
  t.match(await errorsIn(metrics, 'openmetrics'), [/} 1$/]);
});
