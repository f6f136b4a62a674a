/** How a kube-proxy of 1.20 is started in its userspace mode, inside of a network namespace. */

/**
 * Flags that make it run without the sysctls of a machine. `verbosity` 5 is where it logs each run of
 * iptables; from 3 on it logs connections.
 */
export function kubeProxyFlags(options: {
  readonly kubeconfig: string;
  readonly nodeName: string;
  readonly verbosity: number;
}): string[] {
  return [
    `--kubeconfig=${options.kubeconfig}`,
    `--hostname-override=${options.nodeName}`,
    ...'--proxy-mode=userspace --kube-api-content-type=application/json --oom-score-adj=0'.split(
      ' ',
    ),
    ...'--feature-gates=EndpointSliceProxying=false --conntrack-max-per-core=0'.split(' '),
    ...'--conntrack-min=0 --conntrack-tcp-timeout-established=0'.split(' '),
    '--conntrack-tcp-timeout-close-wait=0',
    `-v=${options.verbosity}`,
  ];
}

/** A kubeconfig for a server without authentication. */
export function kubeconfigFor(server: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'bench', cluster: { server } }],
    users: [{ name: 'bench', user: {} }],
    contexts: [{ name: 'bench', context: { cluster: 'bench', user: 'bench' } }],
    'current-context': 'bench',
  });
}
