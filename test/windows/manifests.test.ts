import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as models from '@kubernetes/client-node';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { parse } from '../../src/cli/parse.ts';
import { problemsOf as commandProblems } from '../support/markdown.ts';

/** A part of a manifest, as YAML gives it. */
type Node = Readonly<Record<string, unknown>>;

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}

/** What is wrong with a value that should be of a type of the Kubernetes API: unknown fields and wrong types. */
function problemsOf(type: string, value: unknown, path = type): string[] {
  const list = /^Array<(.*)>$/.exec(type);
  if (list !== null) {
    if (!Array.isArray(value)) return [`${path}: expected a list`];
    return value.flatMap((each, index) => problemsOf(list[1] ?? '', each, `${path}[${index}]`));
  }
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(type);
  if (map !== null) {
    return Object.entries(value as Node).flatMap(([key, each]) =>
      problemsOf(map[1] ?? '', each, `${path}.${key}`),
    );
  }
  if (['string', 'number', 'boolean'].includes(type)) {
    return typeof value === type
      ? []
      : [`${path}: expected a ${type}, not ${JSON.stringify(value)}`];
  }
  if (['IntOrString', 'any', 'object'].includes(type)) return [];
  const model = (models as unknown as Readonly<Record<string, unknown>>)[type] as
    { getAttributeTypeMap?: () => readonly Attribute[] } | undefined;
  const attributes = model?.getAttributeTypeMap?.();
  if (attributes === undefined) return [`${path}: there is no ${type}`];
  return Object.entries(value as Node).flatMap(([key, each]) => {
    const attribute = attributes.find(({ baseName }) => baseName === key);
    if (attribute === undefined) return [`${path}.${key}: unknown field`];
    return problemsOf(attribute.type, each, `${path}.${key}`);
  });
}

/** The type of a manifest: `apps/v1`, `DaemonSet` is V1DaemonSet. */
function typeOf({ apiVersion, kind }: Node): string {
  const version = String(apiVersion).split('/').at(-1) ?? '';
  return `${version.charAt(0).toUpperCase()}${version.slice(1)}${String(kind)}`;
}

const folder = join(import.meta.dirname, '..', '..', 'deploy', 'windows');

function read(file: string): Node[] {
  return parseAllDocuments(readFileSync(join(folder, file), 'utf8')).map((document) => {
    if (document.errors.length > 0) throw document.errors[0];
    return document.toJS() as Node;
  });
}

interface Container {
  readonly name: string;
  readonly args: readonly string[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}
interface DaemonSet {
  readonly spec: {
    readonly selector: { readonly matchLabels: Node };
    readonly template: {
      readonly metadata: { readonly labels: Node };
      readonly spec: {
        readonly serviceAccountName: string;
        readonly hostNetwork: boolean;
        readonly securityContext: { readonly windowsOptions: Node };
        readonly containers: readonly Container[];
        readonly volumes: readonly { readonly name: string }[];
      };
    };
  };
}
const SETS = ['daemonset.yaml', 'daemonset-with-controller.yaml'];
const setOf = (file: string) => read(file)[0] as unknown as DaemonSet;

t.test('the manifests have no unknown fields and no wrong types', async (t) => {
  for (const file of readdirSync(folder).filter((each) => each.endsWith('.yaml'))) {
    for (const each of read(file))
      t.same(problemsOf(typeOf(each), each), [], `${file} ${typeOf(each)}`);
  }
  const [set] = read('daemonset.yaml');
  const wrong = structuredClone(set) as { spec: { template: { spec: Record<string, unknown> } } };
  Object.assign(wrong.spec.template.spec, { hostNetwrok: true, hostNetwork: 'yes' });
  t.same(
    problemsOf('V1DaemonSet', wrong).map((line) => line.replace(/.*spec\./, '')),
    ['hostNetwork: expected a boolean, not "yes"', 'hostNetwrok: unknown field'],
  );
});

t.test('the files that they name exist', async (t) => {
  const [account, role, binding] = read('rbac.yaml') as unknown as [
    { metadata: Node },
    { metadata: Node; rules: { resources: string[]; verbs: string[] }[] },
    { roleRef: Node; subjects: Node[] },
  ];
  t.equal(binding.roleRef['name'], role.metadata['name']);
  t.match(binding.subjects, [{ name: account.metadata['name'], namespace: 'kube-system' }]);
  t.same(
    role.rules.flatMap(({ resources, verbs }) =>
      resources.map((each) => `${each} ${verbs.join()}`),
    ),
    ['services list,watch', 'nodes list,watch', 'endpointslices list,watch'],
    'it reads, and writes nothing',
  );
  for (const file of SETS) {
    const { selector, template } = setOf(file).spec;
    t.same(template.metadata.labels, selector.matchLabels, file);
    t.equal(template.spec.serviceAccountName, account.metadata['name']);
    const volumes = new Set(template.spec.volumes.map(({ name }) => name));
    for (const { volumeMounts = [] } of template.spec.containers) {
      for (const { name } of volumeMounts) t.ok(volumes.has(name), `${file} ${name}`);
    }
  }
});

t.test('they are hostProcess pods whose command lines the program understands', async (t) => {
  for (const file of SETS) {
    const { hostNetwork, securityContext, containers } = setOf(file).spec.template.spec;
    t.equal(hostNetwork, true);
    t.match(securityContext.windowsOptions, { hostProcess: true, runAsUserName: /SYSTEM$/ });
    for (const { name, args, volumeMounts = [] } of containers) {
      const line = args.map((arg) => arg.replace('$(NODE_NAME)', 'node-1'));
      t.equal(parse(line).kind, 'run', `${file} ${name}: ${line.join(' ')}`);
      const config = args.find((arg) => arg.startsWith('--kubeconfig='))?.slice(13);
      if (config === undefined) continue;
      const path = config.replace('C:', '').replaceAll('\\', '/');
      t.ok(
        volumeMounts.some(({ mountPath }) => path.startsWith(`${mountPath}/`)),
        config,
      );
    }
  }
});

t.test('install.ps1 gives the programs command lines that they understand', async (t) => {
  const script = readFileSync(join(folder, 'install.ps1'), 'utf8');
  t.match(script, `@('kube', '--kubeconfig', $KubeConfig, 'to-api')`);
  t.equal(parse(['kube', '--kubeconfig', String.raw`C:\k\config`, 'to-api']).kind, 'run');
  t.match(script, `@('local', 'to-winuserspace', '--node-name', $NodeName, "-v=$Verbosity")`);
  t.equal(parse(['local', 'to-winuserspace', '--node-name', 'node-1', '-v=2']).kind, 'run');
  t.notMatch(script, /Invoke-Expression|iex /i, 'nothing is put together as text and run');

  const values: Readonly<Record<string, string>> = {
    $KubeConfig: String.raw`C:\k\config`,
    $NodeName: 'node-1',
    $Verbosity: '2',
    $Interface: 'kpng0',
    $name: 'kpng',
  };
  // Each `@('…', $Variable)` of the script that begins a command line, or continues with one.
  const lists = [...script.matchAll(/@\(('[^()]*)\)/g)].map(([, list = '']) =>
    list
      .split(', ')
      .map((item) => item.replaceAll(/^['"]|['"]$/g, ''))
      .map((item) => item.replaceAll(/\$\w+/g, (name) => values[name] ?? `?${name}`))
      .join(' '),
  );
  const lines = lists
    .filter((list) => /^(?:service|cleanup) /.test(list))
    .map((list) => {
      if (!list.includes(' install ')) return list;
      const isController = list.includes('--name kpng');
      const rest = lists.find((each) => each.startsWith(isController ? 'kube ' : 'local '));
      const extra = isController ? '' : `${lists.find((each) => each.startsWith('--env '))} -- `;
      return `${list} ${extra}${rest}`;
    });
  t.same(lines, [
    'service uninstall --name winuserspace',
    'service uninstall --name kpng',
    'cleanup --portal-interface=kpng0',
    String.raw`service install --name kpng -- kube --kubeconfig C:\k\config to-api`,
    'service install --name winuserspace --depends-on kpng --env INTERFACE_TO_ADD_SERVICE_IP=kpng0 ' +
      '-- local to-winuserspace --node-name node-1 -v=2',
    'service stop --name kpng',
    'service start --name kpng',
  ]);
  for (const line of lines) t.same(commandProblems(`kpng ${line}`), []);
});

t.test('the image contains the output of build:sea, on a base named by an argument', async (t) => {
  const file = readFileSync(join(folder, '..', '..', 'Dockerfile.windows'), 'utf8');
  const steps = file.split('\n').filter((line) => /^[A-Z]+ /.test(line));
  t.same(
    steps.map((line) => line.split(' ')[0]),
    ['ARG', 'FROM', 'LABEL', 'LABEL', 'LABEL', 'ENV', 'COPY', 'ENTRYPOINT', 'CMD'],
    'and runs nothing',
  );
  t.match(file, /^FROM \$\{BASE\}$/m);
  t.match(file, 'dist-sea/win-x64/kpng-userspace.exe');
});
