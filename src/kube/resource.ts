import type { Json } from './json.ts';

/** `node`: the one that this runs on, of which more is known than of the others. */
export type ResourceName = 'services' | 'endpointslices' | 'nodes' | 'node';

/** A kind of objects that is listed and watched, and what is kept of each. */
export interface Resource<T> {
  readonly name: ResourceName;
  readonly path: string;
  /** Empty: all. */
  readonly labelSelector: string;
  /** Absent: all. */
  readonly fieldSelector?: string;
  /** Whether the server may leave out everything but the metadata. */
  readonly metadataOnly: boolean;
  /** What an object is known by. Throws a KpngError when it has no name. */
  keyOf(raw: Json): string;
  /** What is kept of an object. */
  decode(raw: Json): T;
}

const JSON_TYPE = 'application/json';
const partial = (kind: string): string => `${JSON_TYPE};as=${kind};g=meta.k8s.io;v=v1,${JSON_TYPE}`;

/** The part of a query that says which objects are meant. */
export function selectorsOf({
  labelSelector,
  fieldSelector,
}: Resource<unknown>): Record<string, string> {
  return {
    ...(labelSelector !== '' && { labelSelector }),
    ...(fieldSelector !== undefined && { fieldSelector }),
  };
}

/** The media types to ask for. A server that cannot leave things out sends whole objects. */
export function acceptFor({ metadataOnly }: Resource<unknown>, verb: 'list' | 'watch'): string {
  if (!metadataOnly) return JSON_TYPE;
  return partial(verb === 'list' ? 'PartialObjectMetadataList' : 'PartialObjectMetadata');
}
