/** Limits of configuration files; each has a line in docs/reference/limits.md. */
export const CONFIG_LIMITS = {
  /** Largest file that is read. Bytes. */
  maxFileBytes: 256 * 1024,
  /** How deep objects and lists may be nested. */
  maxDepth: 8,
  /** Keys and values of a document, with aliases expanded. */
  maxValues: 2000,
  /** YAML documents in a file. */
  maxDocuments: 10,
  /** A change is read once the file has been quiet for this long. Milliseconds. */
  settleMs: 200,
  /** A file that keeps changing is read after this long anyway. Milliseconds. */
  maxSettleMs: 1000,
  /** How often the file is checked when the system reports no change. Milliseconds. */
  pollMs: 10_000,
} as const;

/** How errors name a configuration file. */
export const CONFIG_FILE = {
  name: 'the configuration',
  unreadable: 'KPNG_CONFIG_READ',
  tooLarge: 'KPNG_CONFIG_READ',
} as const;

export type JsonType = 'string' | 'integer' | 'boolean' | 'array';

/** The format of a value, as a part of the JSON schema. */
export interface FieldSchema {
  readonly type: JsonType | readonly JsonType[];
  readonly enum?: readonly string[];
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: { readonly type: 'string'; readonly pattern?: string };
}

/** apiVersion and kind of our own document. Its fields are the flags, in camel case, and the words of a command line. */
export const OWN_API_VERSION = 'kpng-userspace/v1alpha1';
export const OWN_KIND = 'UserspaceProxyConfiguration';
export const OWN_COMMAND = 'command';

/** The flags that a configuration file may set, by name without dashes. `parse` throws an Error for a wrong text. */
export type Fields = ReadonlyMap<
  string,
  { readonly kind: { readonly schema: FieldSchema; parse(text: string): unknown } }
>;

/** The field name of a flag: `metrics-bind-address` is `metricsBindAddress`. */
export function fieldName(flag: string): string {
  return flag.replace(/-([a-z\d])/g, (_, first: string) => first.toUpperCase());
}

/**
 * A value from a file as the text of its flag. Undefined for null, which sets nothing. Throws an Error that names the
 * expected type.
 */
export function textOf(value: unknown, { type }: FieldSchema): string | undefined {
  if (value === null || value === undefined) return undefined;
  const allowed = [type].flat();
  const given = Array.isArray(value) ? 'array' : typeof value;
  if (!allowed.some((each) => given === (each === 'integer' ? 'number' : each))) {
    throw new Error(`expected ${allowed.map((each) => TYPE_WORDS[each]).join(' or ')}`);
  }
  const items: readonly unknown[] = [value].flat();
  if (given !== 'array' || items.every((item) => typeof item === 'string')) return items.join(',');
  throw new Error('expected a list of texts, such as [250ms, 1s]');
}

const TYPE_WORDS: Readonly<Record<JsonType, string>> = {
  string: 'a text',
  integer: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
};

/** The fields of KubeProxyConfiguration: those of current versions, and those from the time of the userspace mode. */
export const KUBE_PROXY_API_VERSION = 'kubeproxy.config.k8s.io/v1alpha1';
export const KUBE_PROXY_KIND = 'KubeProxyConfiguration';

export type FieldRule =
  /** Equivalent to a flag. `convert` changes values that kube-proxy writes differently; null sets nothing. */
  | { readonly kind: 'flag'; readonly flag: string; readonly convert?: (value: unknown) => unknown }
  | { readonly kind: 'object'; readonly fields: FieldRules }
  /** Has no effect. A value causes a warning, except the one that the program always behaves as with. */
  | { readonly kind: 'ignored'; readonly why: string; readonly always?: string };

export type FieldRules = Readonly<Record<string, FieldRule>>;

function toFlag(flag: string, convert = (value: unknown): unknown => value): FieldRule {
  return { kind: 'flag', flag, convert };
}

function ignored(why: string): FieldRule {
  return { kind: 'ignored', why };
}

/** `names`: separated by spaces. */
function each(names: string, why: string): FieldRules {
  return Object.fromEntries(names.split(' ').map((name) => [name, ignored(why)]));
}

function object(fields: FieldRules): FieldRule {
  return { kind: 'object', fields };
}

/** For kube-proxy, an empty text means the default. */
function emptyIsDefault(value: unknown): unknown {
  return value === '' ? null : value;
}

/** kube-proxy takes addresses without a port and adds its own. */
function withPort(port: number): (value: unknown) => unknown {
  return (value) => {
    if (typeof value !== 'string') return value;
    if (value === '') return null;
    if (/^\[[^\]]*\]$/.test(value) || /^[^:]+$/.test(value)) return `${value}:${port}`;
    return value.includes('::') && !value.includes('[') ? `[${value}]:${port}` : value;
  };
}

/** A duration of 0 means the default. */
function zeroIsDefault(value: unknown): unknown {
  return value === '' || value === 0 || (typeof value === 'string' && /^0[a-zµ]*$/.test(value))
    ? null
    : value;
}

const PACKETS = 'it applies to the packet rules of other modes';
const LOCAL =
  'pods are recognized by clusterCIDR and, with the source kube, the podCIDRs of the node';

export const KUBE_PROXY_FIELDS: FieldRules = {
  bindAddress: toFlag('bind-address', emptyIsDefault),
  bindAddressHardFail: ignored('addresses that cannot be bound are retried and reported by health'),
  clientConnection: object({
    kubeconfig: toFlag('kubeconfig', emptyIsDefault),
    ...each(
      'acceptContentTypes contentType qps burst',
      'three watches need no rate limit, and use JSON',
    ),
  }),
  clusterCIDR: toFlag('cluster-cidr', emptyIsDefault),
  configSyncPeriod: ignored('watches report every change'),
  conntrack: object(
    each(
      'max maxPerCore min tcpEstablishedTimeout tcpCloseWaitTimeout tcpBeLiberal udpTimeout udpStreamTimeout',
      'connections end in the proxy and need no conntrack settings',
    ),
  ),
  detectLocal: object(each('bridgeInterface interfaceNamePrefix', LOCAL)),
  detectLocalMode: ignored(LOCAL),
  enableProfiling: ignored('there are no profiling pages'),
  featureGates: ignored('there are no feature gates'),
  healthzBindAddress: toFlag('healthz-bind-address', withPort(10_256)),
  hostnameOverride: toFlag('node-name', emptyIsDefault),
  iptables: object(
    each(
      'masqueradeBit masqueradeAll localhostNodePorts snatNodeInternalIP syncPeriod minSyncPeriod',
      PACKETS,
    ),
  ),
  ipvs: object(
    each(
      'syncPeriod minSyncPeriod scheduler excludeCIDRs strictARP tcpTimeout tcpFinTimeout udpTimeout',
      PACKETS,
    ),
  ),
  logging: object({
    format: toFlag('logging-format', emptyIsDefault),
    verbosity: toFlag('v'),
    ...each('flushFrequency vmodule options', 'log lines are written at once, to one stream'),
  }),
  metricsBindAddress: toFlag('metrics-bind-address', withPort(10_249)),
  mode: {
    kind: 'ignored',
    why: 'the mode is always userspace; --portal selects how clients reach the proxy',
    always: 'userspace',
  },
  nftables: object(each('masqueradeBit masqueradeAll syncPeriod minSyncPeriod', PACKETS)),
  nodePortAddresses: toFlag('nodeport-addresses'),
  oomScoreAdj: toFlag('oom-score-adj'),
  portRange: toFlag('port-range', emptyIsDefault),
  resourceContainer: ignored('it was removed from kube-proxy, too'),
  showHiddenMetricsForVersion: ignored('no metrics are hidden'),
  udpIdleTimeout: toFlag('udp-idle-timeout', zeroIsDefault),
  windowsRunAsService: ignored('a service wrapper runs it as a service'),
  winkernel: object(
    each('networkName sourceVip enableDSR rootHnsEndpointName forwardHealthCheckVip', PACKETS),
  ),
};
