import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { parse } from '../../src/cli/parse.ts';
import { problemsOf as commandProblems } from '../support/markdown.ts';

/** A part of a manifest, as YAML gives it. */
type Node = Readonly<Record<string, unknown>>;

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
