package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func finding() []scenario {
	return []scenario{
		{"go-admin-topics", adminTopics},
		{"go-admin-topic-changed", adminTopicChanged},
		{"go-admin-bad-topic", adminBadTopic},
		{"go-admin-groups", adminGroups},
		{"go-several-name-servers", severalNameServers},
		{"go-name-server-by-web", nameServerByWeb},
		{"go-name-server-by-environment", nameServerByEnvironment},
	}
}

func adminTopics(w *world) {
	ctx := context.Background()
	w.createTopic(3)
	queues, err := w.admin().FetchPublishMessageQueues(ctx, w.topic())
	must(err)
	places := []interface{}{}
	for _, queue := range queues {
		places = append(places, fmt.Sprint(queue.BrokerName, "/", queue.QueueId))
	}
	w.put("queues", places)
	w.put("listed", w.isListed())
	must(w.admin().DeleteTopic(ctx, admin.WithTopicDelete(w.topic())))
	eventually("it is no longer listed", func() bool { return !w.isListed() })
	another, err := admin.NewAdmin(admin.WithResolver(w.resolver())) // this one has the route by heart
	must(err)
	defer func() { _ = another.Close() }()
	_, err = another.FetchPublishMessageQueues(ctx, w.topic())
	w.put("afterwards", failure(err))
}

func (w *world) isListed() bool {
	list, err := w.admin().FetchAllTopicList(context.Background())
	must(err)
	for _, topic := range list.TopicList {
		if topic == w.topic() {
			return true
		}
	}
	return false
}

func adminTopicChanged(w *world) {
	ctx := context.Background()
	w.createTopic(2)
	must(w.admin().CreateTopic(ctx,
		admin.WithTopicCreate(w.topic()), admin.WithBrokerAddrCreate(w.broker),
		admin.WithReadQueueNums(6), admin.WithWriteQueueNums(5)))
	eventually("the route has changed", func() bool {
		another, err := admin.NewAdmin(admin.WithResolver(w.resolver()))
		must(err)
		defer func() { _ = another.Close() }()
		queues, err := another.FetchPublishMessageQueues(ctx, w.topic())
		must(err)
		return len(queues) == 5
	})
}

// adminBadTopic: this client takes any answer for a yes, so what is told is whether the topic is there.
func adminBadTopic(w *world) {
	bad := "no spaces allowed"
	_ = w.admin().CreateTopic(context.Background(), admin.WithTopicCreate(bad), admin.WithBrokerAddrCreate(w.broker))
	time.Sleep(time.Second)
	_, err := w.admin().FetchPublishMessageQueues(context.Background(), bad)
	w.put("refused", err != nil)
}

func adminGroups(w *world) {
	w.createTopic(1)
	w.fill(0, "x")
	received := &heard{}
	w.startPush(everything, received.listen)
	received.waitFor(1)
	groups, err := w.admin().GetAllSubscriptionGroup(context.Background(), w.broker, 5*time.Second)
	must(err)
	found := groups.SubscriptionGroupTable[w.group()]
	w.put("group", fmt.Sprintf("%+v", found))
	w.put("version", groups.DataVersion.Counter > 0)
}

func sendOne(w *world, option producer.Option) {
	w.createTopic(1)
	p := w.startProducer(producer.WithGroupName("finding-"+w.name), option)
	sent, err := p.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("found")))
	w.put("sent", toldOfSend(sent, err))
}

func severalNameServers(w *world) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	address := nobody.Addr().String()
	must(nobody.Close())
	sendOne(w, producer.WithNameServer(primitive.NamesrvAddr{address, w.nameServer}))
}

func nameServerByWeb(w *world) {
	page, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, w.nameServer)
	})}
	go func() { _ = server.Serve(page) }()
	defer func() { _ = server.Close() }()
	sendOne(w, producer.WithNameServerDomain(fmt.Sprintf("http://%s/rocketmq/nsaddr", page.Addr())))
}

func nameServerByEnvironment(w *world) {
	must(os.Setenv("NAMESRV_ADDR", w.nameServer))
	sendOne(w, producer.WithNsResolver(primitive.NewEnvResolver()))
}
