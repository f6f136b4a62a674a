import type { Segment } from '../util/yaml.ts';
import type { Finding } from './problem.ts';
import {
  namespaceOf,
  protocolOf,
  type RawEndpoint,
  type RawPort,
  type RawServiceItem,
} from './raw.ts';

/** Findings beyond what the JSON schema can check. */
export interface ItemFindings {
  readonly errors: Finding[];
  /** The file is used, but parts of it have no effect. */
  readonly warnings: Finding[];
}

/** Checks that need more than one value of a service item. */
export function checkItem({ service, endpoints }: RawServiceItem): ItemFindings {
  const findings: ItemFindings = { errors: [], warnings: [] };
  const ports = service.ports ?? [];
  checkPorts(ports, findings);
  // An override applies to the name of a port and to that of its target port.
  const names = new Set(ports.flatMap((port) => [port.name ?? '', port.targetportname ?? '']));
  if (!ports.some(({ name }) => (name ?? '') === '')) names.delete('');
  const owner = { servicename: service.name, namespace: namespaceOf(service) };
  for (const [index, endpoint] of (endpoints ?? []).entries()) {
    const at = ['endpoints', index];
    checkOverrides(endpoint, [...at, 'endpoint', 'portoverrides'], names, findings);
    for (const key of ['servicename', 'namespace'] as const) {
      // kpng overwrites these two silently; a different value is most likely a mistake.
      const value = endpoint[key] ?? '';
      if (value === '' || value === owner[key]) continue;
      const message = `'${value}' is ignored; an endpoint belongs to the service above it (${owner[key]})`;
      findings.warnings.push({ segments: [...at, key], message });
    }
  }
  return findings;
}

const PROTOCOL_NAMES = ['', 'TCP', 'UDP', 'SCTP'] as const;

function checkPorts(ports: readonly RawPort[], { errors }: ItemFindings): void {
  const byName = new Map<string, number>();
  const byNumber = new Map<string, number>();
  for (const [index, { name: given, protocol, port }] of ports.entries()) {
    const at = ['service', 'ports', index];
    const name = given ?? '';
    const sameName = byName.get(name);
    if (sameName === undefined) byName.set(name, index);
    else if (name === '') {
      const message = `more than one port without a name (ports[${sameName}] has none either)`;
      errors.push({ segments: at, message });
    } else {
      const message = `duplicate port name '${name}' (see ports[${sameName}])`;
      errors.push({ segments: [...at, 'name'], message });
    }
    const number = `${PROTOCOL_NAMES[protocolOf(protocol)]} ${port}`;
    const sameNumber = byNumber.get(number);
    if (sameNumber === undefined) byNumber.set(number, index);
    else {
      const message = `duplicate port ${number} (see ports[${sameNumber}])`;
      errors.push({ segments: [...at, 'port'], message });
    }
  }
}

function checkOverrides(
  { endpoint }: RawEndpoint,
  segments: readonly Segment[],
  names: ReadonlySet<string>,
  { errors, warnings }: ItemFindings,
): void {
  const seen = new Set<string>();
  for (const [index, override] of (endpoint?.portoverrides ?? []).entries()) {
    const name = override.name ?? '';
    const at = [...segments, index, 'name'];
    if (seen.has(name)) {
      errors.push({ segments: at, message: `duplicate port override '${name}'` });
    } else if (!names.has(name)) {
      const message = `the service has no port '${name}'; the override has no effect`;
      warnings.push({ segments: at, message });
    }
    seen.add(name);
  }
}
