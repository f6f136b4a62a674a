import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import t from 'tap';

/**
 * Which folders of src/ may import which, as ARCHITECTURE.md draws it. No folder imports the source or
 * the command line that feeds it. `errors.ts` and `util` are leaves,
 * and `proxysocket/spec.ts` is the plain data that everything around the data path speaks.
 */
const SPEC = 'proxysocket/spec.ts';
/** Which port of an endpoint belongs to a service port: a function that every backend needs. */
const RESOLVE = 'proxier/endpoints.ts';
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  'errors.ts': [],
  util: [],
  api: [],
  store: ['api'],
  client: ['api', 'store'],
  kube: ['api', 'store'],
  file: ['api', 'store'],
  server: ['api', 'store'],
  sinks: ['api', 'store', 'portal', RESOLVE],
  roundrobin: [SPEC],
  proxysocket: ['roundrobin'],
  portal: [SPEC],
  handover: ['proxysocket'],
  proxier: ['api', 'store', 'portal', 'proxysocket'],
  config: [],
  observe: [
    'config',
    'store',
    'kube',
    'file',
    'server',
    'portal',
    'sinks',
    'proxier',
    'proxysocket',
  ],
  service: ['portal'],
  admin: ['observe', 'proxier', 'proxysocket'],
  cli: [
    'admin',
    'service',
    'config',
    'api',
    'store',
    'client',
    'kube',
    'file',
    'server',
    'sinks',
    'portal',
    'proxier',
    'proxysocket',
    'handover',
    'observe',
  ],
  'index.ts': ['api', 'store', 'client', 'sinks', 'proxier'],
};
const LEAVES = new Set(['errors.ts', 'util']);

const ROOT = join(import.meta.dirname, '..');
const SRC = join(ROOT, 'src');

interface Import {
  /** Path below src/, or the name of a package. */
  readonly target: string;
  readonly kind: 'type' | 'value' | 'late';
}

const STATIC = /^(?:import|export)\s+(type\s+)?(?:[\w*${}\s,]+?\s+from\s+)?'([^']+)';/gm;
const LATE = /\bimport\('([^']+)'\)/g;

function importsOf(file: string): Import[] {
  const text = readFileSync(join(SRC, file), 'utf8');
  const target = (specifier: string): string =>
    specifier.startsWith('.') ? slashes(join(dirname(file), specifier)) : specifier;
  return [
    ...[...text.matchAll(STATIC)].map(([, type, specifier = '']): Import => {
      return { target: target(specifier), kind: type === undefined ? 'value' : 'type' };
    }),
    ...[...text.matchAll(LATE)].map(([, specifier = '']): Import => {
      return { target: target(specifier), kind: 'late' };
    }),
  ];
}

function slashes(path: string): string {
  return path.replaceAll(sep, '/');
}

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .map(slashes)
  .filter((path) => path.endsWith('.ts'));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

/** The folder of a file of src/, or the file itself when it is in none. */
function folderOf(file: string): string {
  return file.split('/')[0] ?? file;
}

function isAllowed(from: string, target: string): boolean {
  const [own, other] = [folderOf(from), folderOf(target)];
  if (own === other || LEAVES.has(other)) return own !== 'errors.ts';
  return (ALLOWED[own] ?? []).some((each) => each === other || each === target);
}

t.test('the folders import along the data flow only', async (t) => {
  for (const [file, list] of imports) {
    for (const { target } of list) {
      if (imports.has(target) && !isAllowed(file, target)) t.fail(`${file} imports ${target}`);
    }
  }
  t.strictSame([...new Set(files.map(folderOf))].sort(), Object.keys(ALLOWED).sort());
});

t.test('what is allowed is used', async (t) => {
  for (const [folder, others] of Object.entries(ALLOWED)) {
    for (const other of others) {
      const used = files.some(
        (file) =>
          folderOf(file) === folder &&
          imports.get(file)?.some(({ target }) => folderOf(target) === folderOf(other)),
      );
      t.ok(used, `${folder} imports ${other}`);
    }
  }
});

t.test('imports have no cycle, types included', async (t) => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) t.fail([...path.slice(path.indexOf(file)), file].join(' > '));
    if (path.includes(file) || done.has(file)) return;
    for (const { target } of imports.get(file) ?? []) {
      if (imports.has(target)) visit(target, [...path, file]);
    }
    done.add(file);
  };
  for (const file of files) visit(file, []);
});

/** Which folders of a folder may import which of their siblings. Files beside them are shared, or put them together. */
const SIBLINGS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  api: { generated: [], proto: [] },
  cli: {
    flags: [],
    admin: ['flags'],
    completion: ['flags'],
    service: ['flags'],
    sinks: ['flags'],
    sources: ['flags'],
  },
  portal: {
    rules: [],
    iptables: ['rules'],
    nftables: ['rules'],
    interface: [],
    windows: ['interface'],
  },
  proxysocket: {
    core: [],
    tcp: ['core'],
    udp: ['core'],
    node: ['core', 'tcp', 'udp'],
    linux: ['core', 'tcp', 'udp'],
    pool: ['core', 'linux'],
  },
  sinks: { callout: [], extip: [], healthchecks: [] },
};

t.test('folders of a folder know only the siblings that they are built on', async (t) => {
  const found: Record<string, Record<string, Set<string>>> = {};
  for (const [file, list] of imports) {
    const [folder = '', sibling = '', ...path] = file.split('/');
    if (path.length === 0) continue;
    const used = ((found[folder] ??= {})[sibling] ??= new Set());
    for (const { target } of list) {
      const [otherFolder, other = '', ...rest] = target.split('/');
      if (folder === otherFolder && other !== sibling && rest.length > 0) used.add(other);
    }
  }
  const sorted = (lists: Readonly<Record<string, Iterable<string>>>): object =>
    Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, [...list].sort()]));
  t.strictSame(Object.keys(found).sort(), Object.keys(SIBLINGS));
  for (const [folder, lists] of Object.entries(found)) {
    t.strictSame(sorted(lists), sorted(SIBLINGS[folder] ?? {}), `src/${folder}`);
  }
});

t.test('only types of the data path are used where nothing of it runs', async (t) => {
  for (const [file, list] of imports) {
    for (const { target, kind } of list) {
      if (target === SPEC) t.equal(kind, 'type', `${file} imports ${SPEC}`);
    }
  }
});

t.test('the data path knows only events; its observers know events and snapshots', async (t) => {
  const contracts = /^(?:\w+\/(?:events|counters|engine|inspect|limits|spec|portal|problem)\.ts)$/;
  for (const [file, list] of imports) {
    if (folderOf(file) !== 'observe') continue;
    for (const { target } of list) {
      const other = folderOf(target);
      if (!imports.has(target) || other === 'observe' || LEAVES.has(other)) continue;
      t.match(target, contracts, `${file} imports ${target}`);
    }
  }
});

t.test('the library loads neither gRPC nor the data path', async (t) => {
  const loaded = new Set<string>();
  const load = (target: string): void => {
    if (loaded.has(target)) return;
    loaded.add(target);
    for (const each of imports.get(target) ?? []) if (each.kind === 'value') load(each.target);
  };
  load('index.ts');
  t.ok(loaded.has('client/run.ts'));
  const never = /^(?:@grpc\/|prom-client|pino|(?:proxysocket|portal|roundrobin|observe|cli)\/)/;
  t.strictSame(
    [...loaded].filter((target) => never.test(target)),
    [],
  );
});

t.test('src/ imports only packages that are installed with the program', async (t) => {
  const manifest = readFileSync(join(ROOT, 'package.json'), 'utf8');
  const { dependencies } = JSON.parse(manifest) as { dependencies: Record<string, string> };
  for (const [file, list] of imports) {
    // What generates code runs in a checkout only.
    if (file.startsWith('api/proto/')) continue;
    for (const { target } of list) {
      if (imports.has(target) || target.startsWith('node:')) continue;
      const [scope = '', name = ''] = target.split('/');
      const found = scope.startsWith('@') ? `${scope}/${name}` : scope;
      t.ok(Object.hasOwn(dependencies, found), `${file} imports ${target}`);
    }
  }
});

t.test('ARCHITECTURE.md has a row for each folder', async (t) => {
  const page = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
  const rows = [...page.matchAll(/^\| `src\/([^`]+)\/` \|/gm)].map(([, folder]) => folder);
  const folders = files.filter((file) => file.includes('/')).map(folderOf);
  t.strictSame(new Set([...rows, 'util']), new Set(folders));
});

t.test('ARCHITECTURE.md lists every use of an undocumented API', async (t) => {
  const page = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8');
  const [, section = ''] = page.split('## Undocumented and experimental APIs\n');
  const rows = [...section.matchAll(/^\| [^|]*\(`([\w/.-]+\.ts)`\) \|/gm)].map(([, file]) => file);
  const reachIn =
    /_handle\b|getOwnPropertySymbols|process\.binding|setFlagsFromString\(|import\('node:ffi'\)|\.call\.stream\b|^ +_[a-z]\w*\(|grpc-js\/build|client-node\//m;
  const found = files.filter((file) => reachIn.test(readFileSync(join(SRC, file), 'utf8')));
  t.strictSame(new Set(rows), new Set(found));
});
