import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { configFields, configurableFlags } from '../../src/cli/config-file.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from '../../src/config/kube-proxy-fields.ts';
import { CONFIG_LIMITS } from '../../src/config/limits.ts';
import { resolveConfig } from '../../src/config/resolve.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { formatDuration } from '../../src/util/duration.ts';
import { tableRows } from '../support/markdown.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const PAGE = join(ROOT, 'docs/reference/command-line.md');
const SCHEMA = join(ROOT, 'schema', 'configuration.schema.json');
const FIELDS = configFields(REGISTRY);
const HEAD = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';

function valid(text: string): boolean {
  const validate = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(readFileSync(SCHEMA, 'utf8')) as object,
  );
  return [...parseAllDocuments(text)].every((document) => validate(document.toJS()));
}

t.test('the example of the page is valid, by the program and by the schema', async (t) => {
  const [, example = ''] = /```yaml\n(.*?)```/s.exec(readFileSync(PAGE, 'utf8')) ?? [];
  const resolved = resolveConfig('example', example, FIELDS);
  t.match(resolved, { ok: true, config: { warnings: [] } });
  t.ok(valid(example));
});

t.test('the schema takes every default, and refuses what the program refuses', async (t) => {
  for (const { flag, spec } of configurableFlags(REGISTRY)) {
    const field = [...FIELDS.values()].find((each) => each.flag === flag);
    const text: unknown = spec.kind.format(spec.default);
    if (typeof text !== 'string' || text === '') continue;
    const { type } = spec.kind.schema;
    const plain = type === 'integer' || type === 'boolean' ? text : JSON.stringify(text);
    t.ok(valid(`${HEAD}${field?.name}: ${plain}\n`), `${field?.name}: ${plain}`);
    t.ok(resolveConfig('x', `${HEAD}${field?.name}: ${plain}\n`, FIELDS).ok, `${field?.name}`);
  }
  for (const line of [
    'drainTimeout: 5',
    'v: 11',
    'nope: 1',
    'portal: x',
    'cleanupOnExit: "true"',
  ]) {
    t.notOk(valid(`${HEAD}${line}\n`), `schema: ${line}`);
    t.notOk(resolveConfig('x', `${HEAD}${line}\n`, FIELDS).ok, `program: ${line}`);
  }
});

t.test('the fields of kube-proxy that have a flag have one that exists', async (t) => {
  const flags = new Set([...FIELDS.values()].map(({ flag }) => flag));
  const check = (rules: FieldRules): void => {
    for (const [name, rule] of Object.entries(rules)) {
      if (rule.kind === 'object') check(rule.fields);
      if (rule.kind === 'flag') t.ok(flags.has(rule.flag), name);
    }
  };
  check(KUBE_PROXY_FIELDS);
});

t.test('docs/reference/limits.md has the bounds of configuration files', async (t) => {
  const rows = tableRows(
    readFileSync(join(ROOT, 'docs/reference/limits.md'), 'utf8'),
    'Configuration file',
  );
  t.same(
    rows.map(([, value]) => value),
    [
      formatBytes(CONFIG_LIMITS.maxFileBytes),
      CONFIG_LIMITS.maxDepth.toLocaleString('en'),
      CONFIG_LIMITS.maxValues.toLocaleString('en'),
      CONFIG_LIMITS.maxDocuments.toLocaleString('en'),
      formatDuration(CONFIG_LIMITS.maxParseMs),
      formatBytes(CONFIG_LIMITS.maxParserBytes),
      formatDuration(CONFIG_LIMITS.settleMs),
      formatDuration(CONFIG_LIMITS.maxSettleMs),
      formatDuration(CONFIG_LIMITS.pollMs),
    ],
  );
});
