import { Protocol } from '../api/generated/localv1/api.ts';
import { namespaceOf, protocolOf } from './build.ts';
import type { Segment } from '../util/yaml.ts';
import type { Finding } from './problem.ts';
import type { RawEndpoint, RawPort, RawService, RawServiceItem } from './raw.ts';

/** What the JSON schema cannot say about a service item. */
export interface ItemFindings {
  /** The file is refused. */
  readonly errors: readonly Finding[];
  /** The file is used, but something in it has no effect. */
  readonly warnings: readonly Finding[];
}

type Report = (severity: keyof ItemFindings, segments: readonly Segment[], message: string) => void;

/** Checks that need more than one value of a service item. */
export function checkItem(item: RawServiceItem): ItemFindings {
  const findings = { errors: [] as Finding[], warnings: [] as Finding[] };
  const report: Report = (severity, segments, message) => {
    findings[severity].push({ segments, message });
  };
  const ports = item.service.ports ?? [];
  checkPorts(ports, report);
  const names = overrideNames(ports);
  for (const [index, endpoint] of (item.endpoints ?? []).entries()) {
    checkOverrides(endpoint, index, names, report);
    checkOwner(endpoint, index, item.service, report);
  }
  return findings;
}

function checkPorts(ports: readonly RawPort[], report: Report): void {
  const byName = new Map<string, number>();
  const byNumber = new Map<string, number>();
  for (const [index, port] of ports.entries()) {
    const name = port.name ?? '';
    const sameName = byName.get(name);
    if (sameName === undefined) byName.set(name, index);
    else if (name === '') {
      const message = `more than one port without a name (ports[${sameName}] has none either)`;
      report('errors', ['service', 'ports', index], message);
    } else {
      const message = `duplicate port name '${name}' (see ports[${sameName}])`;
      report('errors', ['service', 'ports', index, 'name'], message);
    }
    const number = `${PROTOCOL_NAMES[protocolOf(port.protocol)]} ${port.port}`;
    const sameNumber = byNumber.get(number);
    if (sameNumber === undefined) byNumber.set(number, index);
    else {
      const message = `duplicate port ${number} (see ports[${sameNumber}])`;
      report('errors', ['service', 'ports', index, 'port'], message);
    }
  }
}

const PROTOCOL_NAMES: Readonly<Record<Protocol, string>> = {
  [Protocol.UnknownProtocol]: 'unknown protocol',
  [Protocol.TCP]: 'TCP',
  [Protocol.UDP]: 'UDP',
  [Protocol.SCTP]: 'SCTP',
};

/** Names under which a port override takes effect: of the port, and of its target port. */
function overrideNames(ports: readonly RawPort[]): Set<string> {
  const names = new Set<string>();
  for (const port of ports) {
    names.add(port.name ?? '');
    const target = port.targetportname ?? '';
    if (target !== '') names.add(target);
  }
  return names;
}

function checkOverrides(
  endpoint: RawEndpoint,
  index: number,
  names: ReadonlySet<string>,
  report: Report,
): void {
  const overrides = endpoint.endpoint?.portoverrides ?? [];
  const seen = new Set<string>();
  for (const [at, override] of overrides.entries()) {
    const name = override.name ?? '';
    const segments = ['endpoints', index, 'endpoint', 'portoverrides', at];
    if (seen.has(name)) {
      report('errors', [...segments, 'name'], `duplicate port override '${name}'`);
    } else if (!names.has(name)) {
      const message = `the service has no port '${name}'; the override has no effect`;
      report('warnings', [...segments, 'name'], message);
    }
    seen.add(name);
  }
}

/** kpng overwrites these two silently; a value that differs is most likely a mistake. */
function checkOwner(
  endpoint: RawEndpoint,
  index: number,
  service: RawService,
  report: Report,
): void {
  const owner = { servicename: service.name, namespace: namespaceOf(service) };
  for (const key of ['servicename', 'namespace'] as const) {
    const value = endpoint[key] ?? '';
    if (value !== '' && value !== owner[key]) {
      const message = `'${value}' is ignored; an endpoint belongs to the service above it (${owner[key]})`;
      report('warnings', ['endpoints', index, key], message);
    }
  }
}
