package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// member is one push consumer of a group. Words in its input: "suspend", "resume".
func member(nameServer, group, topic, instance string, words []string) {
	w := newWorld(instance, nameServer, "")
	options := []consumer.Option{consumer.WithGroupName(group), consumer.WithInstance(instance)}
	for _, word := range words {
		if word == "orderly" {
			options = append(options, consumer.WithConsumerOrder(true))
		}
	}
	c := w.newPush(append(options, signed()...)...)
	must(c.Subscribe(topic, everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			line := told(message)
			line["event"], line["at"] = "received", now()
			printLine(line)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(c.Start())
	printLine(map[string]interface{}{"event": "started"})
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		switch input.Text() {
		case "suspend":
			c.Suspend()
		case "resume":
			c.Resume()
		}
	}
	w.close()
	printLine(map[string]interface{}{"event": "done"})
}

// signed gives the credentials of the environment, if there are any: "ACCESSKEY:SECRETKEY".
func signed() []consumer.Option {
	if found, ok := credentials(); ok {
		return []consumer.Option{consumer.WithCredentials(found)}
	}
	return nil
}

func credentials() (primitive.Credentials, bool) {
	keys := strings.SplitN(os.Getenv("CREDENTIALS"), ":", 2)
	if len(keys) != 2 {
		return primitive.Credentials{}, false
	}
	return primitive.Credentials{AccessKey: keys[0], SecretKey: keys[1]}, true
}

func keepOn(nameServer, topic, seconds string) {
	w := newWorld("keep-on", nameServer, "")
	options := []producer.Option{}
	if found, ok := credentials(); ok {
		options = append(options, producer.WithCredentials(found))
	}
	p := w.startProducer(options...)
	length, err := strconv.ParseFloat(seconds, 64)
	must(err)
	deadline := now() + length
	for number := 0; now() < deadline; number++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("go-", number)))
		sent, err := p.SendSync(context.Background(), message)
		line := map[string]interface{}{"number": number, "body": string(message.Body)}
		if err != nil {
			line["event"], line["error"] = "failed", err.Error()
		} else {
			line["event"], line["status"] = "sent", int(sent.Status)
		}
		line["at"] = now()
		printLine(line)
		time.Sleep(100 * time.Millisecond)
	}
	w.close()
	printLine(map[string]interface{}{"event": "done"})
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// traffic sends six messages, two in each way, and consumes them; and a batch, which gives its messages no ids,
// to a topic that is not consumed.
func traffic(nameServer, topic string) {
	ctx := context.Background()
	w := newWorld("traffic", nameServer, "")
	p := w.startProducer(producer.WithGroupName("go-producers"))
	numbered := func(n int) *primitive.Message {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint("go-", n)))
		message.WithKeys([]string{fmt.Sprint("key-", n)}).WithTag("even").WithProperty("number", fmt.Sprint(n))
		if n%2 == 1 {
			message.WithTag("odd")
		}
		return message
	}
	for n := 0; n < 2; n++ {
		_, err := p.SendSync(ctx, numbered(n))
		must(err)
	}
	for n := 2; n < 4; n++ {
		done := make(chan error)
		must(p.SendAsync(ctx, func(_ context.Context, _ *primitive.SendResult, err error) { done <- err }, numbered(n)))
		must(<-done)
	}
	for n := 4; n < 6; n++ {
		must(p.SendOneWay(ctx, numbered(n)))
	}
	var batch []*primitive.Message
	for n := 0; n < 4; n++ {
		batch = append(batch, primitive.NewMessage(topic+"-batch", []byte(fmt.Sprint("go-batch-", n))))
	}
	_, err := p.SendSync(ctx, batch...)
	must(err)
	received := &heard{}
	c := w.newPush(consumer.WithGroupName("go-consumers"))
	must(c.Subscribe(topic, everything, received.listen))
	must(c.Start())
	received.waitFor(6)
	quiet()
	w.close()
	printLine(map[string]interface{}{"event": "done", "bodies": received.sortedBodies()})
}
