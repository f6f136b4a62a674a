/**
 * Events of the Kubernetes source, published on diagnostics channels, beside those of all sources
 * (`store/events.ts`). `server` is the URL of the API server.
 */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';
import type { Cause } from './failure.ts';
import type { ResourceName } from './resource.ts';

/** The source starts, or continues with a re-read configuration. */
export const kubeStarted = typedChannel<{
  server: string;
  /** Path of the kubeconfig, `in-cluster` or `--server`. */
  origin: string;
  context: string;
  /** The user; for people. */
  user: string;
  /** The kind of credentials: `token`, `certificate`, `password`, `nothing`. */
  by: string;
  /** URL of the proxy without credentials, if there is one. */
  proxy: string | undefined;
  /** Which Services are watched. */
  selector: string;
}>('kube:started');

/** A list is complete; the watch follows. */
export const kubeListed = typedChannel<{
  server: string;
  resource: ResourceName;
  objects: number;
  pages: number;
  durationMs: number;
  /** The reason for listing: the first time, or the cause of the previous failure. */
  why: 'start' | Cause;
}>('kube:listed');

/** A watch has been opened. */
export const kubeWatching = typedChannel<{
  server: string;
  resource: ResourceName;
  /** Whether anything had failed before. */
  recovered: boolean;
}>('kube:watching');

/** Events of a watch that arrived together. */
export interface KubeReceived {
  resource: ResourceName;
  added: number;
  modified: number;
  deleted: number;
  bookmarks: number;
}

/** A list or a watch failed. The known state stays. */
export const kubeFailed = typedChannel<{
  server: string;
  resource: ResourceName;
  kind: Cause;
  error: KpngError;
  /** Whether it is a normal part of a watch and no cause for concern. */
  routine: boolean;
  relist: boolean;
  retryInMs: number;
}>('kube:failed');

/** Published when the number of EndpointSlices without their service changes. */
export interface KubeOrphans {
  count: number;
  /** `namespace/name` of one such slice and of its service; undefined: none left. */
  example: { slice: string; service: string } | undefined;
}

/** Published when this node becomes eligible or ineligible for load-balancer traffic. */
export const kubeNode = typedChannel<{
  node: string;
  /** `tainted`: the cluster autoscaler is about to remove it. Undefined: eligible. */
  ineligible: 'tainted' | 'deleted' | undefined;
}>('kube:node');

/** Slices have arrived with the time of their cause. */
export const kubeTriggered = typedChannel<{
  /** Milliseconds since the epoch; none is before the source's start. */
  times: readonly number[];
}>('kube:triggered');

export const kubeReceived = typedChannel<KubeReceived>('kube:received');
export const kubeOrphans = typedChannel<KubeOrphans>('kube:orphans');
