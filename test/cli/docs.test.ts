import { readFileSync, writeFileSync, existsSync, globSync } from 'node:fs';
import { join, dirname } from 'node:path';
import { Ajv } from 'ajv';
import { format, resolveConfig as prettierConfig } from 'prettier';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { parseConfig, configFields, configurableFlags } from '../../src/cli/config-file.ts';
import { LIMIT_FLAGS } from '../../src/cli/flags/limits.ts';
import { defaultText } from '../../src/cli/flags/table.ts';
import { helpText } from '../../src/cli/help.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import type { Topic } from '../../src/cli/topic.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from '../../src/config/kube-proxy-fields.ts';
import { CONFIG_LIMITS } from '../../src/config/limits.ts';
import { resolveConfig } from '../../src/config/resolve.ts';
import { ERROR_CODES } from '../../src/errors.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { REVIEW_LIMITS } from '../../src/kube/reviews.ts';
import * as bounds from '../../src/portal/bounds.ts';
import { LIMIT_NAMES } from '../../src/proxysocket/limits.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { formatDuration } from '../../src/util/duration.ts';
import { configSchema } from '../../tools/docs/config-schema.ts';
import { fillPage } from '../../tools/docs/fill.ts';
import { cliParts } from '../../tools/docs/pages.ts';
import { listItems, tableRows } from '../support/markdown.ts';

const docs = join(import.meta.dirname, '..', '..', 'docs');
const OWN = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
const SCHEMA = join(docs, '..', 'schema', 'configuration.schema.json');

function page(name: string): string {
  return readFileSync(join(docs, name), 'utf8');
}

/** The words in backticks of a cell. */
function codes(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);
}

t.test('pages and schema are what the flag tables say', async (t) => {
  const schema = await format(JSON.stringify(configSchema(REGISTRY), null, 2), {
    ...(await prettierConfig(SCHEMA)),
    parser: 'json',
  });
  const made: [string, string][] = [
    [
      join(docs, 'reference/command-line.md'),
      fillPage(page('reference/command-line.md'), cliParts(REGISTRY)),
    ],
    [SCHEMA, schema],
  ];
  for (const [path, text] of made) {
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, text);
    t.equal(readFileSync(path, 'utf8'), text, 'UPDATE_DOCS=1 npx tap test/cli/docs.test.ts');
  }
});

t.test('every command line of a help text is understood', (t) => {
  const commands = [...REGISTRY.sources, ...REGISTRY.sinks, ...REGISTRY.others];
  const lines = commands.flatMap(({ examples }) => examples.map(({ line }) => line));
  const config = parseConfig('c.yaml', `${OWN}command: file to-json\n`, REGISTRY);
  t.ok(lines.length >= 20);
  for (const line of lines) {
    const [words = ''] = line.split(/ [|>] /);
    const invocation = parse(words.split(' '), {}, REGISTRY, config);
    t.match(invocation.kind, /^(?:run|other)$/, line);
  }
  t.end();
});

t.test('help fits a terminal, and teaches with examples', (t) => {
  const topics: Topic[] = [{ kind: 'nothing' }];
  for (const command of REGISTRY.others) topics.push({ kind: 'other', command, operands: [] });
  for (const source of REGISTRY.sources) {
    topics.push({ kind: 'source', source });
    for (const sink of REGISTRY.sinks) topics.push({ kind: 'command', source, sink });
  }
  for (const text of topics.map((topic) => helpText(topic, REGISTRY))) {
    const lines = text.split('\n');
    const [first = ''] = lines;
    for (const line of lines) t.ok(line.length <= 110, `${first}: ${line}`);
    t.match(text, /\nUsage:\n {2}kpng-userspace /, first);
    t.match(text, /\nExamples:\n {2}# .+\n {2}kpng-userspace /, first);
    t.ok(text.endsWith('\n') && !text.endsWith('\n\n'));
  }
  t.end();
});

t.test(
  'docs/reference/errors.md has every code, says what it means and whether it is retried',
  (t) => {
    const documented = listItems(page('reference/errors.md')).map(({ names: [code], text }) => {
      const [, mark, meaning] = /^(?: \((retried)\): )?(.*)\n {2}\S/.exec(text) ?? [];
      return { code, meaning, retried: mark !== undefined };
    });
    t.same(
      documented,
      Object.entries(ERROR_CODES).map(([code, { summary, retried }]) => {
        return { code, meaning: summary, retried };
      }),
      'in the order of src/errors.ts',
    );
    t.end();
  },
);

t.test(
  'docs/reference/limits.md has every limit of the data path, with its flag and default',
  (t) => {
    const documented = tableRows(page('reference/limits.md'), 'Data path').map(
      ([name = '', standard]) => ({
        name: codes(name)[0],
        standard,
      }),
    );
    t.same(
      documented,
      Object.values(LIMIT_NAMES).map((name) => ({
        name: `--${name}`,
        standard: defaultText(LIMIT_FLAGS[name]),
      })),
      'in the order of src/proxysocket/limits.ts',
    );
    t.end();
  },
);

t.test('docs/reference/limits.md has every fixed limit, with its value', (t) => {
  const rows = tableRows(page('reference/limits.md'), 'State file');
  const limits = DEFAULT_FILE_LIMITS;
  t.same(
    rows.map(([, value]) => value),
    [
      formatBytes(limits.maxFileBytes),
      formatBytes(limits.maxPieceChars),
      limits.maxDepth.toLocaleString('en'),
      limits.maxAliasedValues.toLocaleString('en'),
      formatBytes(limits.maxParserBytes),
      formatDuration(limits.maxParseMs),
      formatDuration(limits.maxOutdatedParseMs),
      limits.maxProblems.toLocaleString('en'),
      formatDuration(limits.settleMs),
      formatDuration(limits.maxSettleMs),
      formatDuration(limits.pollMs),
    ],
  );
  t.equal(rows.length, Object.keys(limits).length);
  const kube = DEFAULT_KUBE_LIMITS;
  const kubeRows = tableRows(page('reference/limits.md'), 'Kubernetes API').map(
    ([, value = '']) => value,
  );
  t.same(
    kubeRows.map((value) => value.replace(/, .*/, '')),
    [
      String(kube.pageSize),
      formatBytes(kube.maxPageBytes),
      kube.maxListPages.toLocaleString('en'),
      formatBytes(kube.maxListBytes),
      kube.maxObjects.toLocaleString('en'),
      formatDuration(kube.listTimeoutMs),
      String(kube.maxInterimResponses),
      formatBytes(kube.maxEventBytes),
      formatDuration(kube.responseTimeoutMs),
      formatDuration(kube.pauseTimeoutMs),
      formatDuration(kube.credentialsTimeoutMs),
      kube.watchSeconds.map((seconds) => formatDuration(seconds * 1000)).join(' to '),
      formatDuration(kube.silenceMs),
      formatDuration(kube.stableMs),
      formatDuration(kube.maxRetryAfterMs),
      formatDuration(kube.maxOutageWaitMs),
    ],
  );
  t.equal(kubeRows.length, Object.keys(kube).length);
  t.same(
    tableRows(page('reference/limits.md'), 'Portal with packet rules').map(([, value]) => value),
    [
      formatDuration(bounds.WRITE_TIMEOUT_MS),
      [bounds.MIN_CANARY_INTERVAL_MS, bounds.CANARY_INTERVAL_MS].map(formatDuration).join(' to '),
      formatDuration(bounds.CANARY_TIMEOUT_MS),
      String(bounds.CANARY_MISSES),
      formatDuration(bounds.ADDRESS_INTERVAL_MS),
      String(bounds.MAX_TRIALS),
      [bounds.WRITE_RETRY.initialMs, bounds.WRITE_RETRY.maxMs].map(formatDuration).join(' to '),
      String(bounds.MAX_FLOW_ADDRESSES),
      String(bounds.MAX_FLOW_COMMANDS),
      formatBytes(bounds.MAX_FLOW_LIST),
      formatDuration(bounds.LOCK_WAIT_S * 1000),
      formatBytes(bounds.MAX_RULE_LIST),
      [bounds.JUMP_AUDIT.intervalMs, bounds.JUMP_AUDIT.maxMs].map(formatDuration).join(' to '),
      formatDuration(bounds.FULL_AUDIT.intervalMs),
      String(bounds.MAX_COMPARISONS),
    ],
    'in the order of src/portal/bounds.ts',
  );
  t.same(
    tableRows(page('reference/limits.md'), 'Portal with addresses on an interface').map(
      ([, value]) => value,
    ),
    [
      `${formatDuration(bounds.WRITE_TIMEOUT_MS)}, and ${formatDuration(bounds.ADDRESS_WRITE_MS)} for each address`,
      formatDuration(bounds.CANARY_INTERVAL_MS),
      String(bounds.PROBES_PER_CHECK),
      `${formatDuration(bounds.LISTING_INTERVAL_MS)}, or ${1 / bounds.LISTING_SHARE} times as long as a listing takes`,
      formatDuration(bounds.MAX_LINGER_MS),
      formatDuration(bounds.LINGER_CHECK_MS),
    ],
  );
  const reviews = tableRows(page('reference/limits.md'), 'HTTP servers').slice(-6);
  t.same(
    reviews.map(([, value]) => value),
    [
      formatDuration(REVIEW_LIMITS.rememberMs),
      String(REVIEW_LIMITS.maxRemembered),
      String(REVIEW_LIMITS.maxPending),
      REVIEW_LIMITS.maxTokenChars.toLocaleString('en'),
      formatBytes(REVIEW_LIMITS.maxResponseBytes),
      formatDuration(REVIEW_LIMITS.responseTimeoutMs),
    ],
    'in the order of src/kube/reviews.ts',
  );
  t.end();
});

/** Names and links in the pages exist. For what they show, see test/docs. */

const root = join(import.meta.dirname, '..', '..');
const pages = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((name) => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));

t.test('every npm script is one', (t) => {
  const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  for (const { name, text } of pages) {
    for (const [, script = ''] of text.matchAll(/\bnpm run ([\w:]+)/g)) {
      t.ok(script in scripts, `${name}: npm run ${script}`);
    }
  }
  t.end();
});

t.test('every link within the repository has a target', (t) => {
  for (const { name, text } of pages) {
    for (const [, target = '', anchor] of text.matchAll(/\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)/g)) {
      const file = target === '' ? name : join(dirname(name), target);
      t.ok(existsSync(join(root, file)), `${name}: ${target}`);
      if (anchor === undefined) continue;
      const headings = readFileSync(join(root, file), 'utf8').match(/^#+ .*$/gm) ?? [];
      t.ok(
        headings.some((heading) => anchorOf(heading) === anchor),
        `${name}: #${anchor}`,
      );
    }
  }
  t.end();
});

/** As GitHub makes it. */
function anchorOf(heading: string): string {
  return heading
    .replace(/^#+ /, '')
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

const ROOT = join(import.meta.dirname, '..', '..');
const PAGE = join(ROOT, 'docs/reference/command-line.md');
const CONFIG_SCHEMA = join(ROOT, 'schema', 'configuration.schema.json');
const FIELDS = configFields(REGISTRY);
const HEAD = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';

function valid(text: string): boolean {
  const validate = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(readFileSync(CONFIG_SCHEMA, 'utf8')) as object,
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

t.test('every kube-proxy field names an existing flag', async (t) => {
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
