/** promtool: alerts that Prometheus can read and that fire when they should, and panels with expressions it can read. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { stringify } from 'yaml';
import { missing, run } from '../support/toolbox.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', '..', 'deploy');
const RULES = join(DEPLOY, 'prometheus', 'rules.yaml');
const skip = missing('promtool');

t.test('promtool can read the alerts', { skip }, async (t) => {
  const check = 'check rules --lint=all --lint-fatal'.split(' ');
  const { code, text } = await run('promtool', [...check, RULES]);
  t.equal(code, 0, text);
  const alerts = readFileSync(RULES, 'utf8').match(/- alert:/g)?.length;
  t.match(text, `SUCCESS: ${alerts} rules found`);
});

t.test('alerts fire when they should, and not before', { skip }, async (t) => {
  const tests = join(DEPLOY, 'prometheus', 'rules.test.yaml');
  const { code, text } = await run('promtool', ['test', 'rules', tests]);
  t.equal(code, 0, text);
  t.match(text, /SUCCESS/);
});

/** Grafana puts something into the place of each variable before Prometheus sees it. */
const filled = (expr: string): string =>
  expr.replaceAll(/\$__(rate_)?interval/g, '5m').replaceAll(/\$\{?\w+(:\w+)?\}?/g, 'x');

async function readable(folder: string, exprs: readonly string[]) {
  const rules = exprs.map((expr, index) => ({ record: `panel:${index}`, expr: filled(expr) }));
  const file = join(folder, 'panels.yaml');
  writeFileSync(file, stringify({ groups: [{ name: 'dashboard', rules }] }));
  return run('promtool', ['check', 'rules', file]);
}

t.test('Prometheus can read each expression of the dashboard', { skip }, async (t) => {
  const dashboard = JSON.parse(
    readFileSync(join(DEPLOY, 'grafana', 'kpng-userspace.json'), 'utf8'),
  ) as { panels: { targets?: { expr: string }[] }[] };
  const exprs = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  t.ok(exprs.length > 10);
  const { code, text } = await readable(t.testdir(), exprs);
  t.equal(code, 0, text);
});
