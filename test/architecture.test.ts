import { globSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import t from 'tap';

/**
 * Which folders of src/ may import which, as ARCHITECTURE.md draws it. No folder imports the source or
 * the command line that feeds it. `errors.ts` and `util` are leaves,
 * and `proxysocket/spec.ts` is the plain data that everything around the data path speaks. Folders of a folder know only
 * siblings; files beside them are shared, or put them together.
 */
const SPEC = 'proxysocket/spec.ts';
/** Which port of an endpoint belongs to a service port: a function that every backend needs. */
const RESOLVE = 'proxier/endpoints.ts';
const ALLOWED = readTable(`
  errors.ts:
  util:
  api:
  store: api
  client: api store
  kube: api store
  file: api store
  server: api store
  sinks: api store portal ${RESOLVE}
  roundrobin: ${SPEC}
  proxysocket: roundrobin
  portal: ${SPEC}
  handover: observe proxysocket
  proxier: api store portal proxysocket
  config:
  observe: config store kube file server portal sinks proxier proxysocket
  admin: observe proxier proxysocket
  cli: admin config api store client kube file server sinks portal proxier proxysocket handover observe
  index.ts: api store client sinks proxier
  api/generated:
  cli/flags:
  cli/admin: flags
  cli/service: flags
  cli/sinks: flags
  portal/rules:
  portal/iptables: rules
  portal/nftables: rules
  portal/interface:
  portal/windows: interface
  proxysocket/core:
  proxysocket/tcp: core
  proxysocket/udp: core
  proxysocket/node: core tcp udp
  proxysocket/linux: core tcp udp
  proxysocket/pool: core linux
`);
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

/** The folder of a folder that a file is in. */
const partOf = (file: string): string | undefined => /^[^/]+\/[^/]+(?=\/)/.exec(file)?.[0];

/** What each folder may import. */
function readTable(text: string): ReadonlyMap<string, ReadonlySet<string>> {
  const rows = text.trim().split('\n');
  return new Map(
    rows.map((row) => {
      const [name = '', list = ''] = row.trim().split(/: ?/);
      return [name, new Set(list.split(' ').filter(Boolean))];
    }),
  );
}

t.test(
  'folders import along the data flow only, and siblings that they are built on',
  async (t) => {
    const found = new Map<string, Set<string>>();
    const rowOf = (name: string): Set<string> => {
      const row = found.get(name) ?? new Set();
      found.set(name, row);
      return row;
    };
    for (const [file, list] of imports) {
      const [own, part] = [folderOf(file), partOf(file)];
      for (const name of [own, part]) if (name !== undefined) rowOf(name);
      for (const { target } of list) {
        const [other, sibling] = [folderOf(target), partOf(target)];
        if (!imports.has(target) || (LEAVES.has(other) && own !== 'errors.ts')) continue;
        const isInside = own === other;
        if (isInside && (part === undefined || sibling === undefined || part === sibling)) continue;
        const name = isInside ? String(part) : own;
        const allowed = ALLOWED.get(name);
        const folder = isInside ? String(sibling?.split('/')[1]) : other;
        const entry = allowed?.has(target) === true ? target : folder;
        rowOf(name).add(entry);
        if (allowed?.has(entry) !== true) t.fail(`${file} imports ${target}`);
      }
    }
    t.same(found, ALLOWED, 'nothing else is allowed');
  },
);

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
    /_handle\b|getOwnPropertySymbols|process\.binding|setFlagsFromString\(|import\('node:ffi'\)|\.call\.stream\b|^ +_[a-z]\w*\(|credentials\._|grpc-js\/build|client-node\//m;
  const found = files.filter((file) => reachIn.test(readFileSync(join(SRC, file), 'utf8')));
  t.strictSame(new Set(rows), new Set(found));
});

t.test('no file but generated ones has more than 400 lines', async (t) => {
  const exclude = ['src/api/generated/**'];
  const long = globSync('{src,test}/**/*.ts', { cwd: ROOT, exclude }).filter(
    (file) => readFileSync(join(ROOT, file), 'utf8').split('\n').length > 401,
  );
  t.strictSame(long, []);
});
