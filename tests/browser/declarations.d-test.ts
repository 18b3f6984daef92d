// The declarations say no more than the module keeps: each part of it fits what is declared.

import * as declared from "../../src/headwater/http/js/headwater.js";
import * as folding from "../../src/headwater/http/js/folding.js";
import * as groups from "../../src/headwater/http/js/groups.js";
import * as keys from "../../src/headwater/http/js/keys.js";
import * as live from "../../src/headwater/http/js/live.js";
import * as producer from "../../src/headwater/http/js/producer.js";
import * as requests from "../../src/headwater/http/js/requests.js";
import * as responses from "../../src/headwater/http/js/responses.js";
import * as state from "../../src/headwater/http/js/state.js";
import * as streams from "../../src/headwater/http/js/streams.js";

type Public<T> = { [K in keyof T]: T[K] };
type Fits<Real, Declared> = Public<Real> extends Public<Declared> ? true : false;

export const checks: true[] = [
  fits<Fits<groups.Delivery, declared.Delivery>>(true),
  fits<Fits<Omit<groups.Group, "ack">, Omit<declared.Group, "ack" | "fetch" | "consume">>>(true),
  fits<Fits<typeof keys.keyset, typeof declared.keyset>>(true),
  fits<Fits<typeof keys.encodeValue, typeof declared.encodeValue>>(true),
  fits<Fits<typeof keys.keyId, typeof declared.keyId>>(true),
  fits<Fits<live.LiveStream, declared.LiveStream>>(true),
  fits<Fits<producer.Producer, declared.Producer>>(true),
  fits<Fits<requests.HeadwaterError, declared.HeadwaterError>>(true),
  fits<Fits<responses.DurableResponse, declared.DurableResponse>>(true),
  fits<Fits<state.State, Omit<declared.State, "collection">>>(true),
  fits<Fits<state.Collection, declared.Collection>>(true),
  fits<Fits<folding.Fold, declared.Fold>>(true),
  fits<Fits<streams.Batch, declared.Batch>>(true),
  fits<Fits<Omit<streams.Stream, "group" | "live" | "state" | "producer">, Omit<declared.Stream, "group" | "live" | "state" | "producer">>>(true),
];

function fits<T extends true>(yes: T): true {
  return yes;
}
