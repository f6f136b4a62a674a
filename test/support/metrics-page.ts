import { Registry } from 'prom-client';
import type { Test } from 'tap';
import { eventMetrics } from '../../src/observe/event-metrics.ts';
import {
  createMetrics,
  register,
  type MeasuredDataPath,
  type Metrics,
  type MetricsOptions,
} from '../../src/observe/metrics.ts';
import { newCounters, type ServicePortCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { NOTHING } from '../../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { Subscriptions } from '../../src/util/channel.ts';

/** One line of a metrics page. */
export type Sample = MetricsPage['samples'][number];

export type MetricsPage = ReturnType<typeof parseMetrics>;

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/s;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g;

/** Reads the text format strictly: throws on anything that a scraper would refuse. */
export function parseMetrics(text: string) {
  /** By family, in order of appearance. */
  const types = new Map<string, string>();
  const samples: { name: string; labels: Readonly<Record<string, string>>; value: number }[] = [];
  let family = '';
  if (!text.endsWith('\n')) throw new Error('no line feed at the end');
  const isOpenMetrics = text.endsWith('\n# EOF\n');
  if (isOpenMetrics) checkOpenMetrics(text);
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('# HELP ') || line === '# EOF') continue;
    if (line.startsWith('# TYPE ')) {
      const [, , name = '', type = ''] = line.split(' ');
      if (types.has(name)) throw new Error(`${name} comes twice`);
      family = name;
      types.set(name, type);
      continue;
    }
    const [, name = '', labels = '', value = ''] = SAMPLE.exec(line) ?? [];
    if (name === '') throw new Error(`not a sample: ${line}`);
    const isCounter = isOpenMetrics && types.get(family) === 'counter';
    const suffix = isCounter ? /_total$/ : /_(bucket|sum|count)$/;
    if (name.replace(suffix, '') !== family && (isCounter || name !== family)) {
      throw new Error(`${name} stands under ${family}`);
    }
    samples.push({ name, labels: parseLabels(labels), value: parseValue(value) });
  }
  /** The value of the only sample with this name and these labels (or more); undefined if none. */
  const value = (
    name: string,
    labels: Readonly<Record<string, string>> = {},
  ): number | undefined => {
    const found = samples.filter(
      (sample) =>
        sample.name === name &&
        Object.entries(labels).every(([key, wanted]) => sample.labels[key] === wanted),
    );
    if (found.length > 1) throw new Error(`${found.length} samples of ${name}`);
    return found[0]?.value;
  };
  return { types, samples, value };
}

/** What OpenMetrics refuses and Prometheus' text format allows. */
function checkOpenMetrics(text: string): void {
  const wrong =
    /^$|^# (?!HELP|TYPE|EOF$).*|^# EOF\n.|^# TYPE \S+_total counter$|.*le="\d+".*|.* Nan$/m;
  const found = wrong.exec(text.slice(0, -1));
  if (found !== null) throw new Error(`not OpenMetrics: ${JSON.stringify(found[0])}`);
}

function parseLabels(text: string): Record<string, string> {
  const pairs = [...text.matchAll(LABEL)].map(([, name = '', escaped = '']) => {
    const value = escaped.replace(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char));
    return [name, value] as const;
  });
  const labels = Object.fromEntries(pairs);
  if (text.replaceAll(LABEL, '') !== '') throw new Error(`not labels: ${text}`);
  if (Object.keys(labels).length < pairs.length) throw new Error(`one comes twice: ${text}`);
  return labels;
}

function parseValue(text: string): number {
  // Scrapers do not mind the case, and prom-client writes Nan.
  if (text.toLowerCase() === 'nan') return Number.NaN;
  if (text === '+Inf') return Number.POSITIVE_INFINITY;
  const value = Number(text);
  if (Number.isNaN(value)) throw new Error(`not a value: ${text}`);
  return value;
}

/** The page that some metrics make. */
export async function scrapePage(metrics: Pick<Metrics, 'render'>): Promise<MetricsPage> {
  let text = '';
  for await (const piece of metrics.render()) text += piece;
  return parseMetrics(text);
}

/** A service port that has carried nothing but what `counters` say. */
export function measuredPort(
  name: string,
  counters: Partial<ServicePortCounters> = {},
  more: Partial<ServicePortSnapshot> = {},
): ServicePortSnapshot {
  const all = { ...newCounters(), ...counters };
  return { name, protocol: 'TCP', listeners: [], endpoints: 1, counters: all, ...more };
}

/** Metrics, until the test ends, of a data path with the service ports that the list has at each scrape. */
export function startMetrics(
  t: Test,
  servicePorts: readonly ServicePortSnapshot[] = [],
  {
    engine,
    ...dataPath
  }: Partial<Omit<MeasuredDataPath, 'engine'>> & {
    engine?: Partial<MeasuredDataPath['engine']>;
  } = {},
  options: Partial<MetricsOptions> = {},
): { metrics: Metrics; page: () => Promise<MetricsPage> } {
  const metrics = createMetrics({ version: '0', ...options });
  t.teardown(() => metrics.close());
  metrics.observe({
    engine: {
      kind: 'node',
      names: () => servicePorts.map(({ name }) => name),
      snapshot: (names) => servicePorts.filter(({ name }) => names?.has(name) ?? true),
      inspect: async () => NOTHING,
      ...engine,
    },
    portal: 'none',
    limits: DEFAULT_LIMITS,
    problems: () => [],
    ...dataPath,
  });
  return { metrics, page: () => scrapePage(metrics) };
}

/** The metrics that events update, until the test ends, by a clock. */
export function eventRegistry(t: Test, now: () => number): Registry {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  t.teardown(() => subscriptions.end());
  const { subscribe, sourceAges } = eventMetrics(now, now);
  subscribe(subscriptions, register(registry, { source_last_event_age_seconds: sourceAges }));
  return registry;
}
