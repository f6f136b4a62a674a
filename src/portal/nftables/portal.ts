import { systemExec } from '../exec.ts';
import { ROUTE_AUDIT } from '../bounds.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import type { Family } from '../../util/family.ts';
import type { Element, RuleConfig, TransparentRoute } from '../rules/backend.ts';
import { createCanary, type RuleCanary } from '../rules/canary.ts';
import { networksOf } from '../node-addresses.ts';
import { RulePortal, type RulePortalOptions } from '../rules/rule-portal.ts';
import { NftablesBackend } from './backend.ts';
import { PolicyRoute } from './policy-route.ts';
import { addressKey, DEFAULT_TABLE, portKey, type SetKind, setName } from './table.ts';
import { SHARED_ADDRESS } from './chains.ts';

export interface NftablesPortalOptions extends RulePortalOptions {
  /** Default `kpng-userspace`. Several proxiers on one host need different tables. */
  readonly table?: string;
  /** Deliver packets unchanged to transparent sockets. Absent: redirect them to proxy ports. */
  readonly transparent?: TransparentOptions | undefined;
}

interface TransparentOptions {
  readonly route: TransparentRoute;
  /** Makes a transparent socket on a loopback address; resolves with its descriptor. */
  readonly socket: (family: Family) => Promise<number>;
}

/**
 * Redirects traffic with one nftables table: a constant number of rules, and maps of services. A change is a few
 * elements. It redirects packets to proxy ports, or delivers them unchanged to transparent sockets: then its kind is
 * `transparent`.
 */
export class NftablesPortal extends RulePortal {
  /** Throws KPNG_USAGE for an invalid bind address or table name, RangeError for node port addresses. */
  constructor(options: NftablesPortalOptions) {
    const { table = DEFAULT_TABLE, exec = systemExec, transparent } = options;
    const apart = 'give each a --portal-table of its own';
    const route = transparent && new PolicyRoute(exec, transparent.route);
    const backend = new NftablesBackend(exec, table, route);
    const isTransparent = transparent !== undefined;
    super(options, {
      kind: isTransparent ? 'transparent' : 'nftables',
      apart: isTransparent
        ? `${apart}, and --portal-mark, --portal-route-table and --portal-rule-priority`
        : apart,
      backend,
      elements: (_, redirects, proxyPorts) => [
        ...redirects.flatMap((each) => elementsOfRedirect(each, isTransparent)),
        ...(isTransparent ? [] : proxyPorts.map(proxyPortElement)),
      ],
      canary: (config) => nftablesCanary(config, transparent?.socket),
      ...(isTransparent && {
        quickAudit: {
          policy: ROUTE_AUDIT,
          difference: (config) => backend.routeDifference(config),
        },
        transparent: {
          route: transparent.route,
          addresses: SHARED_ADDRESS,
          listener: listenerElement,
        },
      }),
    });
  }
}

function proxyPortElement({ family, protocol, port }: ProxyPort): Element {
  return { set: setName('proxy-ports', family), key: portKey(protocol, port), value: '' };
}

function listenerElement({ family, port }: ProxyPort): Element {
  return { set: setName('listeners', family), key: 'tcp', value: String(port) };
}

/** `unchanged`: packets keep their destination. */
function elementsOfRedirect(
  { family, portal, proxyPort, drops = false }: Redirect,
  unchanged: boolean,
): Element[] {
  const { address, protocol, port, sourceRanges, clusterClients } = portal;
  const isNodePort = address === undefined;
  const key = isNodePort ? portKey(protocol, port) : addressKey(address, protocol, port);
  const element = (kind: SetKind, value = '', suffix = ''): Element => ({
    set: setName(kind, family),
    key: key + suffix,
    value,
  });
  const withNetworks = (kind: SetKind, networks: readonly string[]): Element[] =>
    networksOf(networks, family).map((network) => element(kind, '', ` . ${network}`));
  const elements: Element[] = [];
  if (proxyPort !== undefined) {
    const value = unchanged ? '' : String(proxyPort);
    elements.push(element(isNodePort ? 'node-ports' : 'services', value));
  } else if (!drops) elements.push(element(isNodePort ? 'empty-node-ports' : 'empty'));
  const isClosed = drops && proxyPort === undefined && !isNodePort;
  if (drops && !isClosed) {
    elements.push(
      element(isNodePort ? 'no-local-node-ports' : 'no-local'),
      ...withNetworks(isNodePort ? 'node-port-pods' : 'pods', clusterClients?.networks ?? []),
    );
  }
  if (isNodePort || (sourceRanges.length === 0 && !isClosed)) return elements;
  // Without an allowed network of the family, no client is admitted.
  elements.push(element('guarded'));
  if (!isClosed) elements.push(...withNetworks('allowed', sourceRanges));
  return elements;
}

/** A canary behind the table's rules, in one family: the table is added and removed atomically. */
export function nftablesCanary(
  { owner, families }: RuleConfig,
  socket?: TransparentOptions['socket'],
): RuleCanary {
  return createCanary(owner, [families.includes(4) ? 4 : 6], {
    socket,
    reached: [
      (family, { address, port }, proxyPort) => {
        const key = addressKey(address, 'TCP', port);
        const value = String(proxyPort);
        const set = setName('services', family);
        return socket === undefined
          ? [{ set, key, value }, proxyPortElement({ family, protocol: 'TCP', port: proxyPort })]
          : [
              { set, key, value: '' },
              { set: setName('canary', family), key, value },
            ];
      },
    ],
  });
}
