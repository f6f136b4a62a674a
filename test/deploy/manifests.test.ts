/**
 * The manifests of deploy/: whether the program takes their arguments, and whether they may do no more than needed.
 * `npm run test:deploy` compares them with the schemas of Kubernetes.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import t, { type Test } from 'tap';
import { parse as parseYaml } from 'yaml';
import { parse } from '../../src/cli/parse.ts';
import { programVersion } from '../../src/cli/version.ts';
import {
  inputHash,
  manifestsOf,
  readRendered,
  RENDERINGS,
  type Manifest,
} from './support/rendered.ts';

const version = programVersion();
const ROOT = join(import.meta.dirname, '..', '..');
const CHART = join(ROOT, 'deploy', 'helm', 'kpng-userspace');

interface Container {
  readonly name: string;
  readonly image: string;
  readonly args: readonly string[];
  readonly env?: readonly { readonly name: string }[];
  readonly securityContext: {
    readonly runAsNonRoot?: boolean;
    readonly capabilities: { readonly add?: readonly string[] };
  };
  readonly resources: { readonly requests: { readonly memory: string } };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}
interface PodSpec {
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string }[];
  readonly serviceAccountName: string;
  readonly terminationGracePeriodSeconds: number;
}
interface DaemonSetSpec {
  readonly selector: { readonly matchLabels: object };
  readonly template: { readonly metadata: { readonly labels: object }; readonly spec: PodSpec };
  readonly updateStrategy: { readonly rollingUpdate: object };
}

function daemonSet(manifests: readonly Manifest[]): DaemonSetSpec {
  const found = manifests.find(({ kind }) => kind === 'DaemonSet');
  if (found === undefined) throw new Error('there is no DaemonSet');
  return found.spec as DaemonSetSpec;
}

/** Compares what is mounted with the volumes that there are. */
function checkMounts(t: Test, { containers, volumes = [] }: PodSpec): void {
  const names = new Set(volumes.map(({ name }) => name));
  for (const { name, volumeMounts = [] } of containers) {
    for (const mount of volumeMounts) {
      t.ok(names.has(mount.name), `${name} mounts ${mount.name}, which there is`);
    }
  }
}

/** The arguments as the kubelet gives them to the program. */
function argumentsOf({ args, env = [] }: Container): string[] {
  const names = new Set(env.map(({ name }) => name));
  return args.map((arg) =>
    arg.replace(/\$\((\w+)\)/g, (whole, name: string) => (names.has(name) ? '192.0.2.9' : whole)),
  );
}

function mebibytes({ resources }: Container): number {
  return Number(/^(\d+)Mi$/.exec(resources.requests.memory)?.[1]);
}

/** What the proxy takes with 1,000 service ports of two endpoints each, by docs/benchmarks/rest.json. */
function proxyMebibytes(engine: string): number {
  const { tables } = JSON.parse(readFileSync(join(ROOT, 'docs/benchmarks/rest.json'), 'utf8')) as {
    tables: Record<string, string[][]>;
  };
  const of = (table: string): string[] => tables[table]?.find(([name]) => name === engine) ?? [];
  const [perPort = 0, perEndpoint = 0] = of('Memory of each')
    .slice(3)
    .map((cell) => Number(cell.split(' / ')[1]));
  const base = Number(of('At rest')[2]);
  if (!(base > 0 && perPort > 0 && perEndpoint > 0)) throw new Error('other columns');
  return base + (1000 * (perPort + 2 * perEndpoint)) / 1024;
}

for (const rendering of RENDERINGS) {
  t.test(rendering.name, async (t) => {
    const { madeFrom, manifests } = readRendered(rendering);
    t.equal(madeFrom, inputHash(rendering), 'what is kept was made from the files that there are');
    const spec = daemonSet(manifests);
    const pod = spec.template.spec;
    const accounts = manifests.filter(({ kind }) => kind === 'ServiceAccount');
    t.ok(accounts.some(({ metadata }) => metadata.name === pod.serviceAccountName));

    for (const container of pod.containers) {
      const args = argumentsOf(container);
      const outcome = parse(args);
      t.equal(outcome.kind, 'run', `${args.join(' ')} is a command line`);
      t.match(container.image, new RegExp(`^kpng-userspace:${version}(-slim)?$`));
      t.match(container.securityContext, {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    checkMounts(t, pod);
    const proxy = pod.containers.find(({ name }) => name === 'proxy');
    if (proxy === undefined) throw new Error('there is no proxy');
    const line = proxy.args.join(' ');
    const writesRules = /--portal=(auto|nftables|transparent|iptables)/.test(line);
    const { securityContext } = proxy;
    const { add = [] } = securityContext.capabilities;
    t.same(add, writesRules ? ['NET_ADMIN', 'NET_RAW'] : [], 'no more than rules need');
    t.equal(securityContext.runAsNonRoot ?? false, !writesRules);
    t.equal(proxy.image.endsWith('-slim'), !writesRules, 'the image fits');
    const handsOver = line.includes('--handover-socket=/run/kpng-userspace/');
    const update = { maxSurge: 0, ...spec.updateStrategy.rollingUpdate };
    t.match(update, { maxSurge: handsOver ? 1 : 0 }, 'two pods at once only to hand over');
    if (handsOver) {
      t.match(update, { maxUnavailable: 0 });
      t.ok(proxy.args.includes('--handover-wait'));
      t.ok(proxy.volumeMounts?.some(({ mountPath }) => mountPath === '/run/kpng-userspace'));
    }
    const drain = /--drain-timeout=(\d+)(s|m)/.exec(line);
    const drainSeconds = Number(drain?.[1]) * (drain?.[2] === 'm' ? 60 : 1);
    t.ok(pod.terminationGracePeriodSeconds > drainSeconds, 'the kubelet waits for the drain');
    t.match(pod, {
      priorityClassName: 'system-node-critical',
      securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
    });
    t.ok(mebibytes(proxy) >= proxyMebibytes('linux'), 'the scheduler counts what it takes');
  });
}

function windowsManifests(file: string): Manifest[] {
  return manifestsOf(readFileSync(join(ROOT, 'deploy/windows', file), 'utf8'));
}

for (const file of ['daemonset.yaml', 'daemonset-with-controller.yaml']) {
  t.test(`Windows: ${file} has hostProcess pods`, async (t) => {
    const { selector, template } = daemonSet(windowsManifests(file));
    const { containers } = template.spec;
    t.same(template.metadata.labels, selector.matchLabels);
    t.match(template.spec, {
      serviceAccountName: 'kpng-userspace-windows',
      priorityClassName: 'system-node-critical',
      hostNetwork: true,
      securityContext: { windowsOptions: { hostProcess: true, runAsUserName: /SYSTEM$/ } },
    });
    checkMounts(t, template.spec);
    for (const container of containers) {
      const args = argumentsOf(container);
      t.equal(parse(args).kind, 'run', `${args.join(' ')} is a command line`);
      const config = args.find((arg) => arg.startsWith('--kubeconfig='))?.slice(13);
      if (config === undefined) continue;
      const path = config.replace('C:', '').replaceAll('\\', '/');
      const { volumeMounts = [] } = container;
      const isMounted = volumeMounts.some(({ mountPath }) => path.startsWith(`${mountPath}/`));
      t.ok(isMounted, config);
    }
    const proxy = containers.find(({ name }) => name === 'proxy');
    t.ok(proxy !== undefined && mebibytes(proxy) >= proxyMebibytes('node'), 'enough memory');
  });
}

t.test('Helm: objects have the name of the release, or the names that override it', async (t) => {
  for (const [rendering, name, label] of [
    ['helm-default', 'kpng', 'kpng-userspace'],
    ['helm-address', 'kpng-proxy', 'proxy'],
    ['helm-server', 'service-proxy', 'kpng-userspace'],
  ] as const) {
    const found = RENDERINGS.find((each) => each.name === rendering);
    if (found === undefined) throw new Error(rendering);
    const { manifests, text } = readRendered(found);
    t.same(new Set(manifests.map(({ metadata }) => metadata.name)), new Set([name]), rendering);
    const labels = text.match(/(?<=app\.kubernetes\.io\/name: ).*/g);
    t.same(new Set(labels), new Set([label]));
  }
});

t.test('the role allows what the source kube requests, and no writes', async (t) => {
  const rendered = RENDERINGS.map((each) => readRendered(each).manifests);
  for (const manifests of [...rendered, windowsManifests('rbac.yaml')]) {
    const [role, account, binding] = ['ClusterRole', 'ServiceAccount', 'ClusterRoleBinding'].map(
      (wanted) => manifests.find(({ kind }) => kind === wanted),
    );
    t.match(binding, {
      roleRef: { name: role?.metadata.name },
      subjects: [{ name: account?.metadata.name, namespace: 'kube-system' }],
    });
    t.same(role?.['rules'], [
      { apiGroups: [''], resources: ['services', 'nodes'], verbs: ['list', 'watch'] },
      { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
    ]);
  }
});

t.test('Helm: the schema knows and allows each value, and templates use no other', async (t) => {
  const schema = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8')) as {
    properties: Record<string, { properties?: Record<string, unknown> }>;
  };
  const yaml = (file: string) =>
    parseYaml(readFileSync(join(CHART, file), 'utf8')) as Record<string, unknown>;
  const values = yaml('values.yaml');
  const validate = new Ajv({ strict: false }).compile(schema);
  t.ok(validate(values), JSON.stringify(validate.errors));
  const known = Object.keys(schema.properties).filter((key) => key !== 'global');
  t.same(Object.keys(values), known);
  const used = new Set<string>();
  for (const file of ['_helpers.tpl', 'daemonset.yaml', 'monitoring.yaml', 'rbac.yaml']) {
    const text = readFileSync(join(CHART, 'templates', file), 'utf8');
    for (const [, path = ''] of text.matchAll(/\.Values\.([\w.]+)/g)) used.add(path);
  }
  for (const path of used) {
    const found = path.split('.').reduce<unknown>((at, key) => {
      return typeof at === 'object' && at !== null
        ? (at as Record<string, unknown>)[key]
        : undefined;
    }, values);
    t.not(found, undefined, `.Values.${path}`);
  }
  const chart = yaml('Chart.yaml');
  t.same([chart['version'], chart['appVersion']], [version, version]);
});
