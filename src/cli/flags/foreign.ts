/** A flag of kube-proxy or klog that this program does not have. */
export interface ForeignFlag {
  /** Whether it is a boolean flag, which takes a value only after `=`. */
  readonly isSwitch: boolean;
  /** Why it has no effect, or the alternative. */
  readonly why: string;
  /** Whether a value is refused. Absent: every value is accepted, with a warning. */
  readonly refuses?: (value: string) => boolean;
}

/** Flags without effect for the same reason. */
export interface IgnoredFlags {
  readonly flags: readonly string[];
  readonly why: string;
}

const LOG = 'the log goes to standard error; use -v and --logging-format';
const PACKETS = 'no packets are rewritten; --portal selects how clients reach the proxy';
const CONNTRACK = 'connections end in the proxy and need no conntrack settings';
const LOCAL =
  'pods are recognized by --cluster-cidr and, with the source kube, the podCIDRs of the node';
const API = 'three watches need no rate limit and no resync';

const SWITCHES: Readonly<Record<string, string>> = {
  [LOG]:
    'logtostderr alsologtostderr one-output skip-headers skip-log-headers add-dir-header ' +
    'log-json-split-stream log-text-split-stream',
  [PACKETS]:
    'masquerade-all iptables-localhost-nodeports ipvs-strict-arp enable-dsr forward-healthcheck-vip',
  [CONNTRACK]: 'conntrack-tcp-be-liberal',
  'addresses that cannot be bound are retried and reported by health': 'bind-address-hard-fail',
  'there are no profiling pages': 'profiling',
};

const VALUES: Readonly<Record<string, string>> = {
  [LOG]:
    'stderrthreshold vmodule log-dir log-file log-file-max-size log-backtrace-at log-flush-frequency ' +
    'log-json-info-buffer-size log-text-info-buffer-size',
  [PACKETS]:
    'iptables-masquerade-bit iptables-sync-period iptables-min-sync-period ipvs-exclude-cidrs ' +
    'ipvs-min-sync-period ipvs-scheduler ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ' +
    'ipvs-udp-timeout nftables-masquerade-bit nftables-sync-period nftables-min-sync-period ' +
    'network-name root-hnsendpoint-name source-vip',
  [CONNTRACK]:
    'conntrack-max-per-core conntrack-min conntrack-tcp-timeout-close-wait ' +
    'conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream',
  [LOCAL]: 'detect-local-mode pod-bridge-interface pod-interface-name-prefix',
  [API]: 'kube-api-burst kube-api-content-type kube-api-qps config-sync-period',
  'there are no feature gates': 'feature-gates',
  'no metrics are hidden': 'show-hidden-metrics-for-version',
};

const always = (): boolean => true;

/** By name, with dashes; klog's spelling with underscores is equivalent. */
export const FOREIGN_FLAGS: ReadonlyMap<string, ForeignFlag> = new Map<string, ForeignFlag>([
  ...named(SWITCHES, true),
  ...named(VALUES, false),
  [
    'proxy-mode',
    {
      isSwitch: false,
      why:
        'this program proxies in userspace only; leave the flag out and select with --portal how clients ' +
        'reach the proxy',
      refuses: (mode) => mode !== '' && mode !== 'userspace',
    },
  ],
  ['cleanup', { isSwitch: true, why: 'use the command cleanup', refuses: always }],
  ['init-only', { isSwitch: true, why: 'no step needs privileges of its own', refuses: always }],
  ['write-config-to', { isSwitch: false, why: 'use config print --output yaml', refuses: always }],
  ['windows-service', { isSwitch: true, why: 'use the command service', refuses: always }],
]);

function named(
  names: Readonly<Record<string, string>>,
  isSwitch: boolean,
): [string, ForeignFlag][] {
  return Object.entries(names).flatMap(([why, list]) =>
    list.split(' ').map((name): [string, ForeignFlag] => [name, { isSwitch, why }]),
  );
}
