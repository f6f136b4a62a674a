/** The options that the annotations of a service set for its service ports. */
import type { Service } from '../api/generated/localv1/api.ts';
import type { Protocol, ServicePortSpec } from '../proxysocket/spec.ts';
import { MAX_TIMER_MS } from '../util/clock.ts';
import { parseDuration } from '../util/duration.ts';
import { canonicalNetwork } from './portals.ts';
import type { ServiceProblems } from './service-limits.ts';

const PREFIX = 'kpng-userspace.io/';
/** How long a UDP session may be idle, as `30s` or `1m30s`. */
const UDP_IDLE = `${PREFIX}udp-idle-timeout`;
/** The version of the PROXY protocol that TCP endpoints are sent, `v1` or `v2`. */
const PROXY_PROTOCOL = `${PREFIX}proxy-protocol`;
/** Networks whose TCP connections begin with a PROXY protocol header, as `10.0.0.0/8, 192.0.2.7/32`. */
const PROXY_PROTOCOL_FROM = `${PREFIX}proxy-protocol-from`;

/** Whose address endpoints see with the portal `transparent`: `client`, the default with the policy Local, or `node`. */
const CLIENT_ADDRESS = `${PREFIX}client-address`;

type Options = Partial<
  Pick<ServicePortSpec, 'udpIdleTimeoutMs' | 'keepsClients' | 'proxyProtocol' | 'proxyProtocolFrom'>
>;

type OptionsOf = Record<Protocol, Options>;

const NO_OPTIONS: OptionsOf = { TCP: {}, UDP: {} };

/** Options of service ports by protocol. Invalid values are left out. */
export function readAnnotations(service: Service, problems: ServiceProblems): Readonly<OptionsOf> {
  const { annotations, externalTrafficToLocal, internalTrafficToLocal } = service;
  const isPlain = !Object.keys(annotations).some((name) => name.startsWith(PREFIX));
  if (isPlain && !externalTrafficToLocal) return NO_OPTIONS;
  const options: OptionsOf = { TCP: {}, UDP: {} };
  const read = (name: string, wanted: string, use: (text: string) => boolean): void => {
    const text = annotations[name];
    if (text === undefined || use(text)) return;
    problems.add(`the annotation ${name} ${JSON.stringify(text)} is not ${wanted}`);
  };
  read(UDP_IDLE, 'a duration such as 30s', (text) => {
    const ms = parseDuration(text);
    if (ms === undefined || ms < 1 || ms > MAX_TIMER_MS) return false;
    options.UDP = { udpIdleTimeoutMs: ms };
    return true;
  });
  read(PROXY_PROTOCOL, 'v1 or v2', (text) => {
    if (text !== 'v1' && text !== 'v2') return false;
    options.TCP = { ...options.TCP, proxyProtocol: text === 'v1' ? 1 : 2 };
    return true;
  });
  read(PROXY_PROTOCOL_FROM, 'a list of networks such as 10.0.0.0/8', (text) => {
    const networks = text.split(',').map(canonicalNetwork);
    const proxyProtocolFrom = networks.filter((each) => each !== undefined);
    if (proxyProtocolFrom.length > 0) options.TCP = { ...options.TCP, proxyProtocolFrom };
    return proxyProtocolFrom.length === networks.length;
  });
  const choices =
    annotations[CLIENT_ADDRESS] === 'client'
      ? 'possible without externalTrafficPolicy: Local, as endpoints of other nodes answer past this one'
      : 'client or node';
  let keeps = externalTrafficToLocal;
  read(CLIENT_ADDRESS, choices, (text) => {
    if (text === 'node') keeps = false;
    return text === 'node' || (text === 'client' && externalTrafficToLocal);
  });
  if (keeps) {
    const keepsClients = internalTrafficToLocal ? 'all' : 'external';
    options.TCP = { ...options.TCP, keepsClients };
    options.UDP = { ...options.UDP, keepsClients };
  }
  return options;
}
