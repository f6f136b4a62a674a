import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import { formatHostPort } from '../util/host-port.ts';
import { sameList } from '../util/same-list.ts';

/** `ip:port/PROTOCOL`, with IPv6 addresses in brackets. */
export function portalText(place: {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}): string {
  return `${formatHostPort({ host: place.address, port: place.port })}/${place.protocol}`;
}

/** Whether two lists of listeners are the same, in the same order. */
export function sameListen(a: readonly ListenSpec[], b: readonly ListenSpec[]): boolean {
  return sameList(
    a,
    b,
    (one, other) =>
      one.address === other.address &&
      one.port === other.port &&
      one.traffic === other.traffic &&
      sameTexts(one.sourceRanges ?? [], other.sourceRanges ?? []),
  );
}

/** Whether two lists of texts are the same, in the same order. */
export function sameTexts(a: readonly string[], b: readonly string[]): boolean {
  return sameList(a, b, (one, other) => one === other);
}
