/** Alerts and dashboard: whether they ask for metrics and labels that there are. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { REASON_CODES } from '../../src/observe/verdict.ts';
import { REJECT_COUNTERS } from '../../src/proxysocket/counters.ts';
import { documentedMetrics } from '../support/markdown.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly annotations: { readonly summary: string };
    }[];
  }[];
}

/** The metrics of docs/reference/metrics.md, which a test compares with the code: types by name. */
const METRICS = new Map(
  documentedMetrics(read('docs/reference/metrics.md')).map(({ name, type }) => [name, type]),
);
const FUNCTIONS =
  'sum by rate increase absent absent_over_time and on topk min max count or vector';
const LABELS = 'instance namespace service port protocol direction cause reason state code limit';
const WORDS = `${FUNCTIONS} histogram_quantile ${LABELS} portal what job le`.split(' ');

/** Everything in an expression that is neither a metric, nor a function, nor a label that there is. */
function unknownIn(expr: string): string[] {
  const text = expr.replaceAll(/"[^"]*"/g, '""').replaceAll(/\[[^\]]*\]/g, '');
  return [...text.matchAll(/[a-zA-Z_]\w*/g)]
    .map(([name]) => name)
    .filter((name) => {
      const base = name.replace(/_(bucket|sum|count)$/, '');
      const isMetric = METRICS.has(name) || METRICS.get(base) === 'histogram';
      return !isMetric && !WORDS.includes(name);
    });
}

function rates(expr: string): string[] {
  return [...expr.matchAll(/(?:rate|increase)\((\w+)/g)].map(([, name = '']) => name);
}

t.test('alerts use existing metrics, and rates only of counters', async (t) => {
  t.ok(METRICS.size > 50);
  const rules = (parse(read('deploy/prometheus/rules.yaml')) as Rules).groups.flatMap(
    ({ rules }) => rules,
  );
  t.ok(rules.length >= 8);
  for (const { alert, expr, annotations } of rules) {
    t.same(unknownIn(expr), [], `${alert}: ${expr}`);
    for (const name of rates(expr)) t.match(METRICS.get(name), 'counter', name);
    t.match(annotations.summary, /\.$/, alert);
  }
});

t.test('alerts name existing reasons', async (t) => {
  const known: Readonly<Record<string, readonly string[]>> = {
    kpng_userspace_health: REASON_CODES,
    kpng_userspace_rejected_total: Object.keys(REJECT_COUNTERS),
  };
  const text = read('deploy/prometheus/rules.yaml');
  for (const [metric, reasons] of Object.entries(known)) {
    const selected = [...text.matchAll(new RegExp(`${metric}\\{reason!?[=~]+"([^"]+)"`, 'g'))];
    t.ok(selected.length > 0, metric);
    for (const [, list = ''] of selected)
      for (const reason of list.split('|')) t.ok(reasons.includes(reason), reason);
  }
});

t.test('the same alerts come with kustomize and Helm', async (t) => {
  const rules = parse(read('deploy/prometheus/rules.yaml')) as Rules;
  const object = parse(read('deploy/kustomize/components/monitoring/prometheus-rule.yaml')) as {
    spec: Rules;
  };
  t.same(object.spec, rules);
  t.same(parse(read('deploy/helm/kpng-userspace/rules.yaml')), rules);
});

t.test('the dashboard uses existing metrics and has each panel once', async (t) => {
  const dashboard = JSON.parse(read('deploy/grafana/kpng-userspace.json')) as {
    panels: {
      id: number;
      title: string;
      targets?: { expr: string }[];
      gridPos: Record<string, number>;
    }[];
    templating: { list: { name: string; definition?: string }[] };
  };
  const ids = dashboard.panels.map(({ id }) => id);
  t.equal(new Set(ids).size, ids.length);
  const variables = new Set(dashboard.templating.list.map(({ name }) => name));
  for (const { title, targets = [] } of dashboard.panels) {
    for (const { expr } of targets) {
      t.same(unknownIn(expr), [], `${title}: ${expr}`);
      for (const name of rates(expr)) {
        t.match(METRICS.get(name.replace(/_bucket$/, '')), /counter|histogram/, name);
      }
      for (const [, name = ''] of expr.matchAll(/\$(?!__)(\w+)/g)) t.ok(variables.has(name), name);
    }
  }
  for (const { definition = '' } of dashboard.templating.list) {
    const metric = /label_values\((\w+)/.exec(definition)?.[1];
    if (metric !== undefined) t.ok(METRICS.has(metric), metric);
  }
});
