import { nodePortAddresses } from '../../portal/node-addresses.ts';
import { canonicalNetwork } from '../../proxier/portals.ts';
import { autoWorkers, MAX_WORKERS } from '../../proxysocket/limits.ts';
import type { PortRange } from '../../util/port-range.ts';
import { IPTABLES_FLAVOR_FLAGS, NODE_FLAGS, PORTAL_NAME_FLAGS } from '../flags/backend.ts';
import {
  choice,
  duration,
  integer,
  ipAddress,
  list,
  portRange,
  text,
  toggle,
} from '../flags/kinds.ts';
import { LIMIT_FLAGS, readLimits, readRoute } from '../flags/backend.ts';
import { flag, group, usage } from '../flags/table.ts';
import type { FlagKind, FlagTable, FlagValues } from '../flags/table.ts';

const ADDRESSES = 'Addresses';

/** `auto`, or a number. */
const workers: FlagKind<number> = {
  ...integer(1, MAX_WORKERS),
  placeholder: 'auto|number',
  schema: { type: ['string', 'integer'] },
  parse: (given) => (given === 'auto' ? autoWorkers() : integer(1, MAX_WORKERS).parse(given)),
};

/** `ports`: the default of --port-range. */
export function userspaceFlags(ports: PortRange | undefined) {
  return {
    ...NODE_FLAGS,
    ...group(ADDRESSES, {
      portal: flag(
        choice(['auto', 'nftables', 'transparent', 'iptables', 'address', 'portproxy', 'none']),
        'auto',
      )`
        How clients reach the proxy. nftables, iptables: packet rules redirect every service address to proxy
        ports. transparent: on Linux with --engine linux, packet rules deliver packets unchanged to one socket
        for all TCP services. address: listen on the cluster, external, load-balancer and node addresses
        themselves, those that the host has. portproxy: on Windows, netsh redirects TCP to proxy ports. none:
        listen on proxy ports only. auto: transparent where a trial works, else the first of nftables, iptables
        and address that does; the log says which and why.`,
    }),
    ...PORTAL_NAME_FLAGS,
    ...IPTABLES_FLAVOR_FLAGS,
    ...group(ADDRESSES, {
      'portal-notrack': flag(toggle, false)`
        With --portal transparent, keep service traffic out of connection tracking. The firewall of the host
        must accept untracked packets then, and connections of the host end with their service.`,
      'cleanup-on-exit': flag(toggle, false)`
        Remove the packet rules and the addresses on the interface when INT or TERM ends the process. Off: they
        stay, so that a restart finds them in place.`,
      'portal-interface': flag<string | undefined>(text('name'), undefined, {
        defaultText: 'none; for Windows, see below',
      })`
        Interface that the portal address adds service addresses to, such as kpng0; on Linux it is created if
        missing. auto chooses that portal then. Empty: only addresses that the host already has. On Windows,
        when it is not given: what INTERFACE_TO_ADD_SERVICE_IP names, else vEthernet (HNS Internal NIC), else
        what there is; the log says which and why.`,
      'bind-address': flag(ipAddress, '0.0.0.0')`Address of the proxy ports.`,
      'port-range': flag(portRange, ports, {
        aliases: ['proxy-port-range'],
      })`
        Ports to take proxy ports from. Empty: any free port.`,
      // Throws if the portal refuses an item.
      'nodeport-addresses': flag(
        list('cidrs', (item) => nodePortAddresses([item], [])),
        [],
      )`
        Where node ports are opened: networks, or primary, localhost, all; separated by commas. Empty: every
        address of the host.`,
      'node-ports-only': flag(toggle, false)`
        Serve node ports only, beside another Service proxy: cluster, external and load-balancer IPs are left
        alone.`,
      'cluster-cidr': flag(list('cidrs', checkNetwork), [])`
        Networks of pods, separated by commas. Their clients, like those on the node itself, reach any endpoint
        at the external addresses of services whose externalTrafficPolicy is Local. The source kube adds the
        podCIDRs of the node.`,
      'health-check-node-ports': flag(toggle, true)`
        Answer load balancers on the health-check node ports of services, on the addresses of
        --nodeport-addresses.`,
      'dry-run': flag(toggle, false)`
        Print the commands that the portal would run for the first complete state, with their input, and where
        it would listen; then end with 0. Nothing is run or opened.`,
      engine: flag(choice(['auto', 'node', 'linux']), 'auto')`
        What carries the traffic. node: Node’s own sockets, everywhere. linux: system calls in worker threads,
        on Linux with Node 26, at less cost. auto: linux where all of its start-up probes pass, else node; the
        log says which and why.`,
      workers: flag(workers, 1)`
        Worker threads of the linux engine, each with its part of the clients and of the limits. auto: one for
        each CPU. The node engine always runs in the main thread.`,
    }),
    ...group('Times', {
      'sync-period-duration': flag(duration(1), 15_000)`
        Accepted for compatibility; changes are applied at once.`,
    }),
    ...group('Restart', {
      'handover-socket': flag(text('path'), '')`
        Unix socket over which the running process hands its listeners to a new one with the same flag (Linux,
        Node 26); the old process then drains and exits. Empty: off.`,
      'handover-wait': flag(toggle, false)`
        After the handover and the drain, wait for a signal or for the end of the new process instead of
        exiting: for pods, whose restart would take over again.`,
    }),
    ...LIMIT_FLAGS,
  } satisfies FlagTable;
}

type UserspaceFlags = ReturnType<typeof userspaceFlags>;

function checkNetwork(item: string): void {
  if (canonicalNetwork(item) === item) return;
  throw new Error(`${JSON.stringify(item)}: expected a network such as 10.244.0.0/16`);
}

export function readUserspace(values: FlagValues<UserspaceFlags>) {
  return {
    ...values,
    portal: portalFor(values.portal, values.portalInterface),
    portalRoute: { ...readRoute(values), notrack: values.portalNotrack },
    engine: engineFor(values.engine, values.portal),
    nodePortAddresses: values.nodeportAddresses,
    limits: readLimits(values),
  } as const;
}

/** Node cannot open transparent sockets. */
function engineFor(engine: 'auto' | 'node' | 'linux', portal: string): typeof engine {
  if (portal !== 'transparent') return engine;
  if (engine !== 'node') return 'linux';
  throw usage('--portal transparent needs --engine linux');
}

/** An interface is only valid with a portal that adds addresses to it. */
function portalFor<Kind extends string>(portal: Kind, name = ''): Kind | 'address' {
  if (name === '' || portal === 'address' || portal === 'portproxy') return portal;
  if (portal === 'auto') return 'address';
  throw usage(
    `--portal-interface goes with --portal address; ${portal} adds no addresses to the host`,
  );
}

export type UserspaceOptions = ReturnType<typeof readUserspace>;
