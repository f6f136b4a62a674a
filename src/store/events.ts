/**
 * Events of sources and sinks, published on diagnostics channels. `source` names the source for
 * people, such as `local API at 127.0.0.1:12090`.
 */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

export const sourceConnected = typedChannel<{ source: string }>('source:connected');

export interface SourceDisconnected {
  source: string;
  /** KPNG_SOURCE_LOST: why, in words. */
  error: KpngError;
  /** Milliseconds until the next attempt. */
  retryInMs: number;
}
export const sourceDisconnected = typedChannel<SourceDisconnected>('source:disconnected');

/** A complete change set has arrived. Published before the sink gets it. */
export const sourceSynced = typedChannel<{
  source: string;
  services: number;
  /** How many of them the change set touched. */
  changed: number;
  /** Operations of the change set, as far as it is for one node, with its Sync. */
  operations?: number;
}>('source:synced');

/** A source has written to the state of the cluster. */
export const storeWritten = typedChannel<{ changed: boolean }>('store:written');

/** An operation from a source is invalid and is skipped. */
export const opInvalid = typedChannel<{ source: string; error: KpngError }>('source:op-invalid');

/** A sink rejected a change set. */
export interface SinkFailed {
  /** KPNG_SINK_FAILED; the sink's own error is its cause. */
  error: KpngError;
  /** Number of services that wait for a retry. */
  waiting: number;
  /** Milliseconds until the next attempt, if nothing new comes before. */
  retryInMs: number;
}
export const sinkFailed = typedChannel<SinkFailed>('sink:failed');

/** A sink has accepted a change set after failures. */
export const sinkRecovered = typedChannel<{ failures: number }>('sink:recovered');
