'use strict';

// Scenarios with the Node client ali-ons, against whatever name server and broker it is given.
//
//   node scenarios.js NAMESERVER BROKER [NAME ...]   runs those that are named, or all; each prints one line
//   node scenarios.js traffic NAMESERVER TOPIC       sends and consumes eight messages: what the recorder records
//
// Each scenario works on topics and groups of its own name. One that fails or takes too long says so in its own
// line; the others go on.

const { Consumer, Producer, Message } = require('ali-ons');

const SECONDS_MAX = 90;
const WAIT_SECONDS_MAX = 60;
const SILENT = { info() {}, debug() {}, warn() {}, error() {} };

const scenarios = {
  async 'node-send'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    seen.first = sent(await producer.send(new Message(world.topic, 'red', 'first')));
    seen.second = sent(await producer.send(new Message(world.topic, 'red', 'second')));
    seen.third = sent(await producer.send(new Message(world.topic, 'red', 'third')));
  },

  async 'node-send-properties'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    const message = new Message(world.topic, 'red', '\u5317\u4eac \u{1F680}');
    message.keys = [ 'k1', 'k2' ];
    message.flag = 7;
    message.waitStoreMsgOK = false;
    message.properties.city = 'S\u00e3o Paulo';
    message.properties.number = 5; // the client writes it as it is
    await producer.send(message);
    await producer.send(new Message(world.topic, 'untagged')); // the client tags it "null"
    const heard = await world.consumer();
    await heard.count(2);
    seen.received = heard.all();
  },

  async 'node-send-compressed'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    await producer.send(new Message(world.topic, 'red', 'kourou '.repeat(1000)));
    const heard = await world.consumer();
    await heard.count(1);
    seen.received = heard.all();
  },

  async 'node-send-by-key'(world, seen) {
    await world.createTopic(4);
    const producer = await world.producer();
    seen.queues = [];
    for (let i = 0; i < 8; i++) {
      const message = new Message(world.topic, 'red', `order-${i}`);
      message.shardingKey = `customer-${i % 2}`;
      const result = await producer.send(message);
      if (i < 2) seen.queues.push(typeof Number(result.messageQueue.queueId));
    }
  },

  // The client's fault: it asks for the topic first, and takes the no for an error.
  async 'node-send-unknown-topic'(world, seen) {
    const producer = await world.producer();
    seen.code = await producer.send(new Message(world.topic, 'red', 'x')).then(() => 'sent', err => err.code);
  },

  async 'node-send-namespaced'(world, seen) {
    await world.createTopic(1, `space-node%${world.topic}`);
    const producer = await world.producer({ namespace: 'space-node' });
    await producer.send(new Message(world.topic, 'red', 'inside'));
    const heard = await world.consumer({ namespace: 'space-node' });
    await heard.count(1);
    seen.received = heard.all();
  },

  async 'node-send-with-credentials'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer({ accessKeyId: 'somebody', accessKeySecret: '1234567890' });
    seen.sent = sent(await producer.send(new Message(world.topic, 'red', 'signed')));
  },

  async 'node-delay'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    const heard = await world.consumer();
    const message = new Message(world.topic, 'red', 'later');
    message.delayTimeLevel = 2;
    const begun = Date.now();
    await producer.send(message);
    await heard.count(1);
    seen['in time'] = Date.now() - begun > 1900 && Date.now() - begun < 10000;
    seen.received = heard.all();
  },

  async 'node-push'(world, seen) {
    await world.createTopic(4);
    const producer = await world.producer();
    for (let i = 0; i < 20; i++) await producer.send(new Message(world.topic, 'red', `m${10 + i}`));
    const heard = await world.consumer();
    await heard.count(20);
    await producer.send(new Message(world.topic, 'red', 'm30')); // while it waits at the broker
    await heard.count(21);
    await quiet();
    seen.received = heard.bodies();
  },

  async 'node-push-in-parallel'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    for (let i = 0; i < 20; i++) await producer.send(new Message(world.topic, 'red', `m${10 + i}`));
    const heard = await world.consumer({ parallelConsumeLimit: 8 });
    await heard.count(20);
    seen.received = heard.bodies();
  },

  async 'node-push-by-tag'(world, seen) {
    await sendTagged(world);
    const heard = await world.consumer({}, 'red || green');
    await heard.count(3);
    await quiet();
    seen.received = heard.bodies();
  },

  async 'node-push-by-sql'(world, seen) {
    await sendTagged(world);
    const heard = await world.consumer({}, { expressionType: 'SQL92', subString: 'number BETWEEN 1 AND 2' });
    await heard.count(2);
    await quiet();
    seen.received = heard.bodies();
  },

  async 'node-push-broadcast'(world, seen) {
    await world.createTopic(2);
    const one = await world.consumer({ isBroadcast: true });
    const other = await world.consumer({ isBroadcast: true });
    const producer = await world.producer();
    for (let i = 0; i < 6; i++) await producer.send(new Message(world.topic, 'red', `m${i}`));
    await one.count(6);
    await other.count(6);
    seen.one = one.bodies();
    seen.other = other.bodies();
  },

  async 'node-push-from-last'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    await producer.send(new Message(world.topic, 'red', 'old'));
    await quiet();
    const heard = await world.consumer({ consumeFromWhere: 'CONSUME_FROM_LAST_OFFSET' });
    await quiet();
    await producer.send(new Message(world.topic, 'red', 'new'));
    await heard.body('new'); // a broker sends a new group to the begin of a young queue
    await quiet();
    seen.received = heard.bodies();
  },

  async 'node-push-from-time'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer();
    await producer.send(new Message(world.topic, 'red', 'old'));
    await sleep(2100); // the client gives the time in seconds, of this place
    const between = new Date();
    await sleep(1100);
    await producer.send(new Message(world.topic, 'red', 'new'));
    await quiet();
    const heard = await world.consumer({
      consumeFromWhere: 'CONSUME_FROM_TIMESTAMP',
      consumeTimestamp: clockText(between),
    });
    await heard.body('new');
    await quiet();
    seen.received = heard.bodies();
  },

  async 'node-push-resumes'(world, seen) {
    await world.createTopic(2);
    const producer = await world.producer();
    for (let i = 0; i < 4; i++) await producer.send(new Message(world.topic, 'red', `a${i}`));
    const first = await world.consumer();
    await first.count(4);
    await first.close();
    for (let i = 0; i < 4; i++) await producer.send(new Message(world.topic, 'red', `b${i}`));
    const second = await world.consumer();
    await second.count(4);
    await quiet();
    seen.second = second.bodies();
  },

  async 'node-two-members'(world, seen) {
    await world.createTopic(4);
    const producer = await world.producer();
    const one = await world.consumer();
    const other = await world.consumer();
    let number = 0;
    const round = async () => {
      const before = one.messages.length + other.messages.length;
      for (let i = 0; i < 8; i++) await producer.send(new Message(world.topic, 'red', `m${number++}`));
      await eventually('a round came', () => one.messages.length + other.messages.length >= before + 8);
    };
    await eventually('each gets half of a round', async () => {
      const [ ones, others ] = [ one.messages.length, other.messages.length ];
      await round();
      return one.messages.length === ones + 4 && other.messages.length === others + 4;
    });
    await one.close();
    await eventually('the second has it all', async () => {
      const others = other.messages.length;
      for (let i = 0; i < 8; i++) await producer.send(new Message(world.topic, 'red', `m${number++}`));
      await sleep(2000);
      return other.messages.length >= others + 8;
    });
    await eventually('none is lost', () => new Set([ ...one.bodies(), ...other.bodies() ]).size === number);
  },

  async 'node-retry'(world, seen) {
    await world.createTopic(1);
    await world.knownGroup();
    const producer = await world.producer();
    await producer.send(new Message(world.topic, 'red', 'again'));
    const heard = await world.consumer({}, '*', tries => (tries < 2 ? Consumer.ACTION_RETRY : undefined));
    await heard.count(2);
    await quiet();
    seen.times = heard.messages.map(message => message.reconsumeTimes);
    seen.last = heard.messages[1];
  },

  async 'node-dead-letter'(world, seen) {
    await world.createTopic(1);
    await world.knownGroup();
    const producer = await world.producer();
    await producer.send(new Message(world.topic, 'red', 'hopeless'));
    const heard = await world.consumer({ maxReconsumeTimes: 1 }, '*', () => { throw new Error('on purpose'); });
    await heard.count(2);
    await quiet();
    seen.tries = heard.messages.length;
    await world.createTopic(1, `%DLQ%${world.group}`); // to read what the broker makes for writing only
    const dead = await world.consumer({ consumerGroup: `dead-${world.name}` }, '*', undefined, `%DLQ%${world.group}`);
    await dead.count(1);
    seen.dead = dead.all();
  },

  async 'node-several-name-servers'(world, seen) {
    await world.createTopic(1);
    const producer = await world.producer({ nameSrv: [ '127.0.0.1:1', world.nameServer ] });
    seen.sent = sent(await producer.send(new Message(world.topic, 'red', 'found')));
  },
};

// --- what a scenario works with ------------------------------------------------------------------------------

class World {
  constructor(name, nameServer, broker) {
    Object.assign(this, { name, nameServer, broker, topic: `topic-${name}`, group: `group-${name}` });
    this.instances = 0;
    this.toClose = [];
  }

  options(more) {
    return {
      httpclient: {}, // needed only to ask a web page for name servers
      nameSrv: this.nameServer,
      logger: SILENT,
      instanceName: `${this.name}-${process.pid}-${this.instances++}`,
      pollNameServerInteval: 1000,
      rebalanceInterval: 1000,
      persistConsumerOffsetInterval: 1000,
      ...credentials(),
      ...more,
    };
  }

  async producer(more = {}) {
    const producer = new Producer(this.options({ producerGroup: `producers-${this.name}`, ...more }));
    producer.on('error', () => {});
    await producer.ready();
    this.toClose.push(() => producer.close());
    return producer;
  }

  // A consumer that puts down what it hears. `answer` is told how often, and gives what the listener returns.
  async consumer(more = {}, expression = '*', answer = () => undefined, topic = this.topic) {
    const consumer = new Consumer(this.options({
      consumerGroup: this.group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', ...more,
    }));
    consumer.on('error', () => {});
    const heard = new Heard(consumer);
    consumer.subscribe(topic, expression, async message => {
      heard.messages.push(told(message));
      return answer(heard.messages.length);
    });
    await consumer.ready();
    this.toClose.push(() => heard.close());
    return heard;
  }

  async createTopic(queues, topic = this.topic) {
    this.tools = this.tools || await this.producer({ producerGroup: `tools-${this.name}` });
    const client = this.tools._mqClient;
    await client.createTopic(this.broker, 'TBW102', {
      topicName: topic, readQueueNums: queues, writeQueueNums: queues, perm: 6,
      topicFilterType: 'SINGLE_TAG', topicSysFlag: 0, order: false,
    }, 5000);
    await this.routed(topic);
  }

  async routed(topic) {
    await eventually(`${topic} has a route`, async () => {
      try {
        return await this.tools._mqClient.getTopicRouteInfoFromNameServer(topic, 3000);
      } catch (err) {
        return false;
      }
    });
  }

  // Makes the group's retry topic known before a consumer asks for its route.
  async knownGroup() {
    await (await this.consumer()).close();
    await this.routed(`%RETRY%${this.group}`);
  }

  async close() {
    for (const close of this.toClose.reverse()) await close().catch(() => {});
  }
}

class Heard {
  constructor(consumer) {
    this.consumer = consumer;
    this.messages = [];
  }

  async count(wanted) {
    await eventually(`${wanted} messages came`, () => this.messages.length >= wanted);
  }

  async body(wanted) {
    await eventually(`${wanted} came`, () => this.bodies().includes(wanted));
  }

  bodies() {
    return this.messages.map(message => message.body).sort();
  }

  all() {
    return [ ...this.messages ].sort((one, other) => one.queue - other.queue || one.offset - other.offset);
  }

  async close() {
    if (this.consumer) await this.consumer.close();
    this.consumer = null;
  }
}

// What the environment says, if it says anything: CREDENTIALS=ACCESSKEY:SECRETKEY.
function credentials() {
  const [ accessKeyId, accessKeySecret ] = (process.env.CREDENTIALS || '').split(':');
  return accessKeySecret ? { accessKeyId, accessKeySecret } : {};
}

async function sendTagged(world) {
  await world.createTopic(1);
  const producer = await world.producer();
  for (const [ number, tag ] of [ 'red', 'green', 'blue', 'red' ].entries()) {
    const message = new Message(world.topic, tag, `${tag}${number}`);
    message.properties.number = String(number);
    await producer.send(message);
  }
}

function sent(result) {
  return {
    status: result.sendStatus,
    queue: Number(result.messageQueue.queueId),
    offset: result.queueOffset,
    id: /^[0-9A-F]{32}$/.test(result.msgId) ? 'ID' : result.msgId,
  };
}

// A message as a consumer has it. Left out is what every message would tell of, or belongs to one run.
function told(message) {
  const properties = { ...message.properties };
  for (const name of [ '', '__CRC32#', 'MIN_OFFSET', 'MAX_OFFSET' ]) delete properties[name];
  if (properties.WAIT === 'true') delete properties.WAIT;
  for (const name of [ 'ORIGIN_MESSAGE_ID', 'UNIQ_KEY' ]) if (properties[name]) properties[name] = 'ID';
  const body = message.body ? message.body.toString() : null;
  return {
    topic: message.topic,
    queue: message.queueId,
    offset: message.queueOffset,
    body: body && body.length > 200 ? `${body.length} characters from ${body.slice(0, 7)}` : body,
    flag: message.flag,
    sysFlag: message.sysFlag,
    reconsumeTimes: message.reconsumeTimes,
    properties,
  };
}

const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

// Gives what should not come time to come.
const quiet = () => sleep(1500);

async function eventually(what, happened) {
  for (const deadline = Date.now() + WAIT_SECONDS_MAX * 1000; !await happened(); await sleep(20)) {
    if (Date.now() > deadline) throw new Error(`${WAIT_SECONDS_MAX} s passed before ${what}`);
  }
}

function clockText(moment) {
  const two = number => String(number).padStart(2, '0');
  return moment.getFullYear() + [ moment.getMonth() + 1, moment.getDate(), moment.getHours(), moment.getMinutes(), moment.getSeconds() ].map(two).join('');
}

// --- running ---------------------------------------------------------------------------------------------------

async function run(name, nameServer, broker) {
  const world = new World(name, nameServer, broker);
  const seen = {};
  try {
    await Promise.race([
      scenarios[name](world, seen),
      sleep(SECONDS_MAX * 1000).then(() => { throw new Error(`not done after ${SECONDS_MAX} s`); }),
    ]);
  } catch (err) {
    console.error(name, err);
    seen.BROKEN = String(err);
  }
  await Promise.race([ world.close(), sleep(5000) ]);
  console.log(JSON.stringify({ scenario: name, observed: seen }));
}

async function traffic(nameServer, topic) {
  const world = new World('traffic', nameServer);
  const producer = await world.producer({ producerGroup: 'node-producers' });
  const { brokerDatas } = await producer._mqClient.getTopicRouteInfoFromNameServer('TBW102', 3000);
  world.broker = brokerDatas[0].brokerAddrs[0];
  await world.createTopic(4, topic);
  for (let n = 0; n < 8; n++) {
    const message = new Message(topic, n % 2 ? 'odd' : 'even', `node-${n}`);
    message.keys = [ `key-${n}` ];
    message.properties.number = String(n);
    message.properties.UNIQ_KEY = `AC110002000018B4AAC2${String(n).padStart(12, '0')}`; // this client gives none
    await producer.send(message);
  }
  const heard = await world.consumer({ consumerGroup: 'node-consumers' }, '*', undefined, topic);
  await heard.count(8);
  await quiet();
  await world.close();
  console.log(JSON.stringify({ event: 'done', bodies: heard.bodies() }));
}

async function main() {
  const [ first, second, ...names ] = process.argv.slice(2);
  if (!second) {
    console.error('node scenarios.js NAMESERVER BROKER [NAME ...] | traffic NAMESERVER TOPIC');
    process.exit(2);
  }
  if (first === 'traffic') {
    await traffic(second, names[0]);
  } else {
    const wanted = names.length ? names : Object.keys(scenarios);
    await Promise.all(wanted.map(name => run(name, first, second)));
  }
  process.exit(0); // the client's timers would keep it alive
}

process.on('unhandledRejection', err => console.error('rejected:', err));
main();
