import { Protocol } from '../api/generated/localv1/api.ts';
import { namespaceOf, protocolOf } from './build.ts';
import type { Segment } from './problem.ts';
import type { RawEndpoint, RawPort, RawService, RawServiceItem } from './raw.ts';

/** Something that the JSON schema cannot say, found in a service item. */
export interface Finding {
  /** `error`: the file is refused. `warning`: it is used, but something in it has no effect. */
  readonly severity: 'error' | 'warning';
  /** From the service item to the value. */
  readonly segments: readonly Segment[];
  readonly message: string;
}

type Report = (severity: Finding['severity'], segments: Segment[], message: string) => void;

/** Checks that need more than one value of a service item. */
export function checkItem(item: RawServiceItem): Finding[] {
  const findings: Finding[] = [];
  const report: Report = (severity, segments, message) => {
    findings.push({ severity, segments, message });
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
      report(
        'error',
        ['service', 'ports', index],
        `more than one port without a name (ports[${sameName}] has none either)`,
      );
    } else {
      report(
        'error',
        ['service', 'ports', index, 'name'],
        `duplicate port name '${name}' (see ports[${sameName}])`,
      );
    }
    const number = `${PROTOCOL_NAMES[protocolOf(port.protocol)]} ${port.port}`;
    const sameNumber = byNumber.get(number);
    if (sameNumber === undefined) byNumber.set(number, index);
    else {
      report(
        'error',
        ['service', 'ports', index, 'port'],
        `duplicate port ${number} (see ports[${sameNumber}])`,
      );
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
      report('error', [...segments, 'name'], `duplicate port override '${name}'`);
    } else if (!names.has(name)) {
      report(
        'warning',
        [...segments, 'name'],
        `the service has no port '${name}'; the override has no effect`,
      );
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
      report(
        'warning',
        ['endpoints', index, key],
        `'${value}' is ignored; an endpoint belongs to the service above it (${owner[key]})`,
      );
    }
  }
}
