/**
 * Events of sources and sinks, published on diagnostics channels. `source` names the source for
 * people, such as `local API at 127.0.0.1:12090`.
 */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

export interface SourceConnected {
  source: string;
}

export interface SourceDisconnected {
  source: string;
  /** KPNG_SOURCE_LOST: why, in words. */
  error: KpngError;
  /** Milliseconds until the next attempt. */
  retryInMs: number;
}

/** A complete change set has arrived. Published before the sink gets it. */
export interface SourceSynced {
  source: string;
  services: number;
  /** How many of them the change set touched. */
  changed: number;
  /** Operations of the change set, as far as it is for one node, with its Sync. */
  operations?: number;
}

/** A source has written to the state of the cluster. */
export interface StoreWritten {
  changed: boolean;
}

/** An operation from a source is invalid and is skipped. */
export interface OpInvalid {
  source: string;
  error: KpngError;
}

/** A sink rejected a change set. */
export interface SinkFailed {
  /** KPNG_SINK_FAILED; the sink's own error is its cause. */
  error: KpngError;
  /** Number of services that wait for a retry. */
  waiting: number;
  /** Milliseconds until the next attempt, if nothing new comes before. */
  retryInMs: number;
}

/** A sink has accepted a change set after failures. */
export interface SinkRecovered {
  failures: number;
}

export const sourceConnected = typedChannel<SourceConnected>('source:connected');
export const sourceDisconnected = typedChannel<SourceDisconnected>('source:disconnected');
export const sourceSynced = typedChannel<SourceSynced>('source:synced');
export const storeWritten = typedChannel<StoreWritten>('store:written');
export const opInvalid = typedChannel<OpInvalid>('source:op-invalid');
export const sinkFailed = typedChannel<SinkFailed>('sink:failed');
export const sinkRecovered = typedChannel<SinkRecovered>('sink:recovered');
